// Package client has the calls that the autoscaler makes to Alibaba Cloud: ESS, ECS and VPC, a type for each. They page and
// batch where the API does, and return the types of package alicloud.
//
// A call that buys (Scale, PlanScale and Launch), attaches (Attach) or gives back (Remove and Delete) carries a ClientToken, and is
// repeated under that token only: even if a reply is lost, it is carried out once.
package client

import "gpu-spot-autoscaler/cloudprovider/alicloud/rpc"

// Client has the calls of all services in one region. It is safe for concurrent use. Errors of its calls are an
// *alicloud.Error.
type Client struct {
	*rpc.Caller
	*ESS
	*ECS
	*VPC
}

// New returns a Client. It sends nothing yet: wrong credentials show at the first call.
func New(options rpc.Options) (*Client, error) {
	caller, err := rpc.New(options)
	if err != nil {
		return nil, err
	}
	return &Client{Caller: caller, ESS: &ESS{caller: caller}, ECS: &ECS{caller: caller}, VPC: &VPC{caller: caller}}, nil
}
