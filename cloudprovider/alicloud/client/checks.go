package client

import (
	"context"
	"strconv"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// noInstance is the id of no instance, in the form of one.
const noInstance = "i-doesnotexist00000000"

// Attributes of an account. Source: AttributeName.N of DescribeAccountAttributes, ECS 2014-05-26
// (help.aliyun.com/en/ecs/developer-reference/api-ecs-2014-05-26-describeaccountattributes).
const (
	maxSpotVCPUs  = "max-spot-instance-vcpu-count"
	usedSpotVCPUs = "used-spot-instance-vcpu-count"
)

// allowed returns nil if ECS would have carried out the request that it was to check.
func allowed(err error) error {
	if alicloud.CodeOf(err) == alicloud.CodeDryRun {
		return nil
	}
	return err
}

// CheckInstances returns why instances cannot be listed, nil if they can. Whoever lacks the permission gets an empty list and no error
// without this.
func (c *ECS) CheckInstances(ctx context.Context) error {
	_, err := c.instances(ctx, func(q *ecsapi.DescribeInstancesRequest) { q.DryRun = requests.NewBoolean(true) })
	return allowed(err)
}

// CheckLaunch returns why Launch would refuse the request, nil if it would not. It creates nothing. ECS checks the parameters, the
// permission and the stock ("DryRun" on the page of RunInstances).
func (c *ECS) CheckLaunch(ctx context.Context, l alicloud.LaunchRequest) error {
	_, err := c.launch(ctx, l, true)
	return allowed(err)
}

// CheckRemove returns why Remove would be refused in the scaling group, nil if it would not. ESS has no dry run, so the request names an
// instance that does not exist, and does not have invalid instances ignored: it fails in any case.
//
// That RAM is asked before the instance is looked for is not documented. If it is not, a missing permission remains unnoticed. What is
// answered otherwise is the question only-invalid of docs/contract.md.
func (c *ESS) CheckRemove(ctx context.Context, groupID string) error {
	_, err := rpc.Send(ctx, c.caller, rpc.Request[*essapi.RemoveInstancesResponse]{
		Service: alicloud.ServiceESS, Action: "RemoveInstances", Response: essapi.CreateRemoveInstancesResponse,
		Build: func() requests.AcsRequest {
			q := essapi.CreateRemoveInstancesRequest()
			q.ScalingGroupId, q.InstanceId = groupID, listOf([]string{noInstance})
			q.DecreaseDesiredCapacity, q.IgnoreInvalidInstance = requests.NewBoolean(false), requests.NewBoolean(false)
			return q
		}})
	switch alicloud.ClassOf(err) {
	case alicloud.NotFound, alicloud.Conflict, alicloud.BelowMinimum:
		return nil // it is not there; or the scaling group is busy, or small, which is found out later than what RAM says
	}
	return err
}

// SpotVCPUQuota returns how many vCPUs spot instances may have in the region, and have. The class of the error is NotFound if ECS does not
// say.
func (c *ECS) SpotVCPUQuota(ctx context.Context) (alicloud.VCPUQuota, error) {
	const action = "DescribeAccountAttributes"
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DescribeAccountAttributesResponse]{
		Service: alicloud.ServiceECS, Action: action, Response: ecsapi.CreateDescribeAccountAttributesResponse,
		Build: func() requests.AcsRequest {
			q := ecsapi.CreateDescribeAccountAttributesRequest()
			q.AttributeName = listOf([]string{maxSpotVCPUs, usedSpotVCPUs})
			return q
		}})
	if err != nil {
		return alicloud.VCPUQuota{}, err
	}
	values := map[string]int{}
	for _, item := range r.AccountAttributeItems.AccountAttributeItem {
		for _, value := range item.AttributeValues.ValueItem {
			if n, err := strconv.Atoi(value.Value); err == nil {
				values[item.AttributeName] = n
			}
		}
	}
	for _, name := range []string{maxSpotVCPUs, usedSpotVCPUs} {
		if _, said := values[name]; !said {
			return alicloud.VCPUQuota{}, &alicloud.Error{Service: alicloud.ServiceECS, Action: action, Code: alicloud.CodeIncomplete,
				Message: "the reply has no " + name, Class: alicloud.NotFound, Status: r.GetHttpStatus(), RequestID: r.RequestId}
		}
	}
	return alicloud.VCPUQuota{Max: values[maxSpotVCPUs], Used: values[usedSpotVCPUs]}, nil
}
