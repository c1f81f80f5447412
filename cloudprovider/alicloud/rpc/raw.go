package rpc

import (
	"context"
	"encoding/json"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// apiVersions are the versions in use of the services.
var apiVersions = map[string]string{
	alicloud.ServiceESS: "2014-08-28", alicloud.ServiceECS: "2014-05-26", alicloud.ServiceVPC: "2016-04-28",
}

// onlyByGET are the actions that Call sends by GET, as the SDK does (v1.63.107), and not by POST.
var onlyByGET = sets.New("DescribeElasticStrength")

// Call sends a request with the parameters under their names on the wire, such as "InstanceId.1", and returns the reply
// unchanged. It is for parameters and fields that the SDK does not know. The service is one of alicloud's Service…
// constants.
//
// As every request it may be repeated: one that buys or removes needs a ClientToken.
func (c *Caller) Call(ctx context.Context, service, action string, parameters map[string]string) (json.RawMessage, error) {
	version, known := apiVersions[service]
	if !known {
		return nil, alicloud.InvalidRequest(service, action, "no such service")
	}
	r, err := Send(ctx, c, Request[*responses.CommonResponse]{
		Service: service, Action: action, Response: responses.NewCommonResponse,
		Build: func() requests.AcsRequest {
			q := requests.NewCommonRequest()
			q.Method, q.Product, q.Version, q.ApiName = requests.POST, service, version, action
			if onlyByGET.Has(action) {
				q.Method = requests.GET
			}
			for name, value := range parameters {
				q.QueryParams[name] = value
			}
			q.TransToAcsRequest()
			return q
		}})
	if err != nil {
		return nil, err
	}
	return r.GetHttpContentBytes(), nil
}
