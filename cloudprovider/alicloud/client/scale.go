package client

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/google/uuid"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// What ESS accepts in purchases and removals.
const (
	maxClientToken = 64
	minStopTimeout = 30 * time.Second
	maxStopTimeout = 240 * time.Second
)

// Scale asks a group for more instances. ESS does not check stock, price and quota before it answers; for want of them the
// activity fails.
//
// If alicloud.IsUncertain(err) the purchase may have been made: repeat it under the same ClientToken.
func (c *ESS) Scale(ctx context.Context, s alicloud.ScaleRequest) (alicloud.Scaling, error) {
	r, err := c.adjust(ctx, s, nil)
	if err != nil {
		return alicloud.Scaling{}, err
	}
	return scalingOf(r), nil
}

// PlanScale asks what a purchase would bring, without buying. A service that does not know the mode ignores it and buys. So
// the purchase has to be one that is wanted anyway, and everything that holds for Scale holds here, including the ClientToken
// and errors that leave it uncertain.
//
// Source: ExecutionMode=PlanOnly of ScaleWithAdjustment, and PlanResult in its answer, are documented for ESS 2022-02-22
// (doc comments of alibabacloud-csharp-sdk). Of the version in use here, 2014-08-28, the API metadata of April 2026
// (aliyun-openapi-meta) name ExecutionMode without an explanation, and the Java SDK reads PlanResult; the Go SDK
// (v1.63.107) knows neither. So the parameter is sent raw and the answer is read raw, with lists in the form of either version.
func (c *ESS) PlanScale(ctx context.Context, s alicloud.ScaleRequest) (alicloud.Plan, error) {
	r, err := c.adjust(ctx, s, map[string]string{"ExecutionMode": "PlanOnly"})
	if err != nil {
		return alicloud.Plan{}, err
	}
	var body struct {
		PlanResult *struct{ ResourceAllocations allocations }
	}
	plan := alicloud.Plan{Scaling: scalingOf(r)}
	// A plan that cannot be read counts as none.
	if json.Unmarshal(r.GetHttpContentBytes(), &body) == nil && body.PlanResult != nil {
		plan.Answered, plan.Allocations = true, body.PlanResult.ResourceAllocations
	}
	return plan, nil
}

// allocations decodes a plain list, as version 2022-02-22 has it, and a list inside an object, as is the custom of version
// 2014-08-28. The name of that inner list is not documented, so any name is accepted: a list that was not found would look
// like a plan to buy nothing.
type allocations []alicloud.Allocation

// UnmarshalJSON implements json.Unmarshaler.
func (a *allocations) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*[]alicloud.Allocation)(a)) == nil {
		return nil
	}
	var named map[string][]alicloud.Allocation
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	*a = nil
	for _, list := range named {
		*a = append(*a, list...)
	}
	return nil
}

func scalingOf(r *essapi.ScaleWithAdjustmentResponse) alicloud.Scaling {
	return alicloud.Scaling{ActivityID: r.ScalingActivityId, CapacityChange: r.ActivityType == "CapacityChange"}
}

// adjust sends ScaleWithAdjustment. Parameters that the SDK does not know are in extra.
func (c *ESS) adjust(ctx context.Context, s alicloud.ScaleRequest, extra map[string]string) (*essapi.ScaleWithAdjustmentResponse, error) {
	const action = "ScaleWithAdjustment"
	switch {
	case s.ScalingGroupID == "":
		return nil, alicloud.InvalidRequest(alicloud.ServiceESS, action, "no scaling group given")
	case s.Delta < 1 || s.Delta > alicloud.MaxScale:
		return nil, alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: cannot add %d instances at once, only 1 to %d", s.ScalingGroupID, s.Delta, alicloud.MaxScale)
	case !validToken(s.ClientToken):
		return nil, alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: the client token must be 1 to %d ASCII characters", s.ScalingGroupID, maxClientToken)
	}
	return rpc.Send(ctx, c.caller, rpc.Request[*essapi.ScaleWithAdjustmentResponse]{
		Service: alicloud.ServiceESS, Action: action, Response: essapi.CreateScaleWithAdjustmentResponse,
		Build: func() requests.AcsRequest {
			q := essapi.CreateScaleWithAdjustmentRequest()
			q.ScalingGroupId, q.ClientToken, q.ActivityMetadata = s.ScalingGroupID, s.ClientToken, s.Metadata
			q.AdjustmentType, q.AdjustmentValue = "QuantityChangeInCapacity", requests.NewInteger(s.Delta)
			if !s.Serial {
				q.ParallelTask = requests.NewBoolean(true)
			}
			if s.Sync {
				q.SyncActivity = requests.NewBoolean(true)
			}
			if s.InstanceType != "" {
				q.InstanceType = &[]string{s.InstanceType}
			}
			q.VSwitchId, q.SpotStrategy = listOf(s.VSwitchIDs), s.SpotStrategy
			for name, value := range extra {
				q.QueryParams[name] = value
			}
			return q
		}})
}

// Remove takes instances out of a group, releases them and lowers the desired capacity by as many, so that ESS does not
// replace them. It returns the id of the activity. Instances that are not in the group are ignored; the activity then ends as
// Warning. Protection from scale-in does not keep an instance (SetInstancesProtection speaks of activities of ESS itself).
//
// If the request has no ClientToken one is generated, which covers this call and its retries only.
func (c *ESS) Remove(ctx context.Context, m alicloud.RemoveRequest) (activityID string, err error) {
	const action = "RemoveInstances"
	if m.ClientToken == "" {
		m.ClientToken = uuid.NewString()
	}
	switch {
	case m.ScalingGroupID == "":
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "no scaling group given")
	case len(m.InstanceIDs) < 1 || len(m.InstanceIDs) > alicloud.MaxRemoveBatch:
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: cannot remove %d instances at once, only 1 to %d", m.ScalingGroupID, len(m.InstanceIDs), alicloud.MaxRemoveBatch)
	case m.StopTimeout != 0 && (m.StopTimeout < minStopTimeout || m.StopTimeout > maxStopTimeout):
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: cannot wait %v for instances to stop, only %v to %v", m.ScalingGroupID, m.StopTimeout, minStopTimeout, maxStopTimeout)
	case !validToken(m.ClientToken):
		return "", alicloud.InvalidRequest(alicloud.ServiceESS, action, "%s: the client token must be 1 to %d ASCII characters", m.ScalingGroupID, maxClientToken)
	}
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*essapi.RemoveInstancesResponse]{
		Service: alicloud.ServiceESS, Action: action, Response: essapi.CreateRemoveInstancesResponse,
		Build: func() requests.AcsRequest {
			q := essapi.CreateRemoveInstancesRequest()
			q.ScalingGroupId, q.ClientToken, q.InstanceId = m.ScalingGroupID, m.ClientToken, listOf(m.InstanceIDs)
			q.DecreaseDesiredCapacity, q.IgnoreInvalidInstance = requests.NewBoolean(true), requests.NewBoolean(true)
			q.RemovePolicy = "release"
			if m.StopTimeout > 0 {
				q.StopInstanceTimeout = requests.NewInteger(int(m.StopTimeout.Seconds()))
			}
			return q
		}})
	if err != nil {
		return "", err
	}
	return r.ScalingActivityId, nil
}

func validToken(token string) bool {
	return token != "" && len(token) <= maxClientToken && !slices.ContainsFunc([]byte(token), func(b byte) bool { return b < ' ' || b > '~' })
}
