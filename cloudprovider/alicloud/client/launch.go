package client

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// maxDelete is how many instances one DeleteInstances takes. Source: InstanceId.N of DeleteInstances, ECS 2014-05-26.
const maxDelete = 100

// Launch creates and starts instances, and returns their ids. The instances exist from then on, but for one that turns out to be
// out of stock: ECS releases that again, which no answer says ("Prerequisites" on the page of RunInstances).
//
// If alicloud.IsUncertain(err) the instances may have been created: repeat it under the same ClientToken.
//
// Everything is sent in the body of the request. So user data is in no URL, and errors of the transport quote URLs. A service that
// read no body would refuse the request, which names its image there.
func (c *ECS) Launch(ctx context.Context, l alicloud.LaunchRequest) ([]string, error) {
	return c.launch(ctx, l, false)
}

// launch sends the request, or has ECS only check it. If ECS would carry out a request that it is to check, the code of the error is CodeDryRun.
func (c *ECS) launch(ctx context.Context, l alicloud.LaunchRequest, onlyCheck bool) ([]string, error) {
	const action = "RunInstances"
	switch {
	case l.Amount < 1 || l.Amount > alicloud.MaxLaunch:
		return nil, alicloud.InvalidRequest(alicloud.ServiceECS, action, "cannot create %d instances at once, only 1 to %d", l.Amount, alicloud.MaxLaunch)
	case l.MinAmount < 1 || l.MinAmount > l.Amount:
		return nil, alicloud.InvalidRequest(alicloud.ServiceECS, action, "cannot create at least %d of %d instances", l.MinAmount, l.Amount)
	case !validToken(l.ClientToken):
		return nil, alicloud.InvalidRequest(alicloud.ServiceECS, action, "the client token must be 1 to %d ASCII characters", maxClientToken)
	case len(l.Tags) > alicloud.MaxTags:
		return nil, alicloud.InvalidRequest(alicloud.ServiceECS, action, "an instance has %d tags at most, not %d", alicloud.MaxTags, len(l.Tags))
	}
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.RunInstancesResponse]{
		Service: alicloud.ServiceECS, Action: action, Response: ecsapi.CreateRunInstancesResponse,
		Build: func() requests.AcsRequest {
			q := ecsapi.CreateRunInstancesRequest()
			q.FormParams = launchParameters(l)
			if onlyCheck {
				q.FormParams["DryRun"] = "true"
			}
			return q
		}})
	if err != nil {
		return nil, err
	}
	return r.InstanceIdSets.InstanceIdSet, nil
}

func launchParameters(l alicloud.LaunchRequest) map[string]string {
	p := maps.Clone(l.Settings.Parameters)
	if p == nil {
		p = map[string]string{}
	}
	p["Amount"], p["MinAmount"], p["ClientToken"] = strconv.Itoa(l.Amount), strconv.Itoa(l.MinAmount), l.ClientToken
	p["InstanceType"], p["ZoneId"], p["VSwitchId"], p["SpotStrategy"] = l.InstanceType, l.ZoneID, l.VSwitchID, l.SpotStrategy
	p["InstanceChargeType"] = "PostPaid"
	if l.SpotStrategy != alicloud.NoSpot {
		p["SpotDuration"], p["SpotInterruptionBehavior"] = strconv.Itoa(int(l.SpotDuration.Hours())), "Terminate"
	}
	if l.SpotStrategy == alicloud.SpotWithPriceLimit {
		p["SpotPriceLimit"] = strconv.FormatFloat(l.SpotPriceLimit, 'f', -1, 64)
	}
	for n, key := range slices.Sorted(maps.Keys(l.Tags)) {
		prefix := "Tag." + strconv.Itoa(n+1)
		p[prefix+".Key"], p[prefix+".Value"] = key, l.Tags[key]
	}
	return p
}

// LaunchedInstances returns the instances that have the tag with this value. ECS returns up to 1,000 of them ("Tag.N.Value" of
// DescribeInstances). Whoever lacks the permission gets an empty list and no error, which would look as if everything that was bought
// had vanished; so an empty list is believed only after a dry run ("Operation description" of DescribeInstances).
func (c *ECS) LaunchedInstances(ctx context.Context, tag, value string) ([]alicloud.Instance, error) {
	listed, err := c.instances(ctx, func(q *ecsapi.DescribeInstancesRequest) {
		q.Tag = &[]ecsapi.DescribeInstancesTag{{Key: tag, Value: value}}
	})
	if err == nil && len(listed) == 0 {
		err = c.CheckInstances(ctx)
	}
	// A service that ignored the filter would list all instances.
	return slices.DeleteFunc(listed, func(i alicloud.Instance) bool { return i.Tags[tag] != value }), err
}

// Delete releases instances, running or not. The error's class is NotFound if one of them does not exist.
func (c *ECS) Delete(ctx context.Context, ids []string, token string) error {
	const action = "DeleteInstances"
	if len(ids) < 1 || len(ids) > maxDelete {
		return alicloud.InvalidRequest(alicloud.ServiceECS, action, "cannot release %d instances at once, only 1 to %d", len(ids), maxDelete)
	}
	_, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DeleteInstancesResponse]{
		Service: alicloud.ServiceECS, Action: action, Response: ecsapi.CreateDeleteInstancesResponse,
		Build: func() requests.AcsRequest {
			q := ecsapi.CreateDeleteInstancesRequest()
			q.InstanceId, q.ClientToken, q.Force = listOf(ids), token, requests.NewBoolean(true)
			return q
		}})
	return err
}

// Attach begins to put running instances into a scaling group, and returns the id of the activity. Entrusted has the group
// release them when they are removed, as it does with instances that it created itself. Instances that cannot be attached are left
// out. While the group does anything else ESS refuses (page of AttachInstances, September 2026).
func (c *ESS) Attach(ctx context.Context, a alicloud.AttachRequest) (activityID string, err error) {
	const action = "AttachInstances"
	switch {
	case a.ScalingGroupID == "":
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "no scaling group given")
	case len(a.InstanceIDs) < 1 || len(a.InstanceIDs) > alicloud.MaxAttach:
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: cannot attach %d instances at once, only 1 to %d", a.ScalingGroupID, len(a.InstanceIDs), alicloud.MaxAttach)
	case !validToken(a.ClientToken):
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: the client token must be 1 to %d ASCII characters", a.ScalingGroupID, maxClientToken)
	}
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*essapi.AttachInstancesResponse]{
		Service: alicloud.ServiceESS, Action: action, Response: essapi.CreateAttachInstancesResponse,
		Build: func() requests.AcsRequest {
			q := essapi.CreateAttachInstancesRequest()
			q.ScalingGroupId, q.ClientToken, q.InstanceId = a.ScalingGroupID, a.ClientToken, listOf(a.InstanceIDs)
			q.Entrusted, q.IgnoreInvalidInstance = requests.NewBoolean(true), requests.NewBoolean(true)
			return q
		}})
	if err != nil {
		return "", err
	}
	return r.ScalingActivityId, nil
}
