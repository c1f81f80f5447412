package alicloud

import (
	"context"
	"encoding/json"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
)

// apiVersions are the versions of the services that this package speaks.
var apiVersions = map[string]string{ess: "2014-08-28", ecs: "2014-05-26", vpc: "2016-04-28"}

// Call sends a request with the parameters as they are named on the wire, such as "InstanceId.1", and returns the reply
// as it came: for parameters that the SDK does not know, and for those who want to see all that the API answers. The
// service is "ess", "ecs" or "vpc".
//
// Like every request it is throttled and, where it found no answer, repeated. One that buys or removes needs a ClientToken.
func (c *Client) Call(ctx context.Context, service, action string, parameters map[string]string) (json.RawMessage, error) {
	version, known := apiVersions[service]
	if !known {
		return nil, invalid(service, action, "no such service")
	}
	r, err := send(ctx, c, request[*responses.CommonResponse]{
		service: service, action: action, response: responses.NewCommonResponse,
		build: func() requests.AcsRequest {
			q := requests.NewCommonRequest()
			q.Method, q.Product, q.Version, q.ApiName = requests.POST, service, version, action
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
