package alisim

import (
	"strings"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// location is the service that SDKs ask for the endpoint of another service in a region. Any endpoint will do: whoever uses the simulator
// as a proxy reaches it under each name.
// Source: DescribeEndpoints of Location 2015-06-12, as LocationResolver in sdk/endpoints of github.com/aliyun/alibaba-cloud-sdk-go sends it.
func location() protocol.Service {
	return protocol.Service{Name: "Location", Version: "2015-06-12", Actions: map[string]protocol.Action{
		"DescribeEndpoints": {Handle: describeEndpoints, NeedsNoPermission: true},
	}}
}

func describeEndpoints(r *protocol.Request) (protocol.Reply, error) {
	region, service := r.Get("Id"), r.Get("ServiceCode")
	switch {
	case region == "":
		return nil, protocol.Missing("Id")
	case service == "":
		return nil, protocol.Missing("ServiceCode")
	}
	return protocol.Reply{"Success": true, "Endpoints": protocol.Reply{"Endpoint": []protocol.Reply{{
		"Endpoint": strings.ToLower(service) + "." + region + ".aliyuncs.com", "Id": region, "ServiceCode": service,
		"Type": r.Get("Type"),
	}}}}, nil
}
