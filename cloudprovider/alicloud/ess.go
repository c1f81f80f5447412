package alicloud

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/google/uuid"
)

const ess = "ess"

// What ESS takes at most in one request.
const (
	essPageSize         = 50
	instancesPageSize   = 100
	essIDBatch          = 20 // groups, instances, activities
	configurationsBatch = 10
	maxScaleDelta       = 1000
	maxClientToken      = 64
	minStopTimeout      = 30 * time.Second
	maxStopTimeout      = 240 * time.Second
)

// InstanceFilter narrows a listing of scaling instances. The zero filter is all groups of the region.
type InstanceFilter struct {
	ScalingGroupID string
	IDs            []string
}

// ScalingInstances lists the instances of scaling groups, ordered by id. Pages are fetched concurrently.
func (c *Client) ScalingInstances(ctx context.Context, filter InstanceFilter) ([]ScalingInstance, error) {
	list := func(ctx context.Context, ids []string) ([]ScalingInstance, error) {
		return listPages(ctx, instancesPageSize, func(i ScalingInstance) string { return i.ID },
			func(ctx context.Context, number int) (page[ScalingInstance], error) {
				return c.scalingInstancesPage(ctx, filter.ScalingGroupID, ids, number)
			})
	}
	if len(filter.IDs) == 0 {
		return list(ctx, nil)
	}
	instances, err := inBatches(ctx, filter.IDs, essIDBatch, list)
	slices.SortFunc(instances, func(a, b ScalingInstance) int { return cmp.Compare(a.ID, b.ID) })
	return instances, err
}

func (c *Client) scalingInstancesPage(ctx context.Context, groupID string, ids []string, number int) (page[ScalingInstance], error) {
	r, err := send(ctx, c, request[*essapi.DescribeScalingInstancesResponse]{
		service: ess, action: "DescribeScalingInstances", response: essapi.CreateDescribeScalingInstancesResponse,
		build: func() requests.AcsRequest {
			q := essapi.CreateDescribeScalingInstancesRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(instancesPageSize), requests.NewInteger(number)
			q.ScalingGroupId, q.InstanceId = groupID, listOf(ids)
			return q
		}})
	if err != nil {
		return page[ScalingInstance]{}, err
	}
	return page[ScalingInstance]{convert(r.ScalingInstances.ScalingInstance, scalingInstance), r.PageSize, r.TotalCount}, nil
}

// ScalingConfigurations returns the configurations of the ids; those that do not exist are left out.
func (c *Client) ScalingConfigurations(ctx context.Context, ids []string) ([]ScalingConfiguration, error) {
	return inBatches(ctx, ids, configurationsBatch, func(ctx context.Context, ids []string) ([]ScalingConfiguration, error) {
		r, err := send(ctx, c, request[*essapi.DescribeScalingConfigurationsResponse]{
			service: ess, action: "DescribeScalingConfigurations", response: essapi.CreateDescribeScalingConfigurationsResponse,
			build: func() requests.AcsRequest {
				q := essapi.CreateDescribeScalingConfigurationsRequest()
				q.PageSize, q.ScalingConfigurationId = requests.NewInteger(essPageSize), listOf(ids)
				return q
			}})
		if err != nil {
			return nil, err
		}
		return convert(r.ScalingConfigurations.ScalingConfiguration, scalingConfiguration), nil
	})
}

// Scale asks a group for more instances. Stock, price and quota are not checked before it returns; they fail the
// activity that will bring them.
//
// Where the error's class is Unavailable the purchase may have been made: repeat it under the same ClientToken.
func (c *Client) Scale(ctx context.Context, s ScaleRequest) (Scaling, error) {
	r, err := c.adjust(ctx, s, nil)
	if err != nil {
		return Scaling{}, err
	}
	return scalingOf(r), nil
}

func scalingOf(r *essapi.ScaleWithAdjustmentResponse) Scaling {
	return Scaling{ActivityID: r.ScalingActivityId, CapacityChange: r.ActivityType == "CapacityChange"}
}

// adjust sends ScaleWithAdjustment. Parameters that the SDK does not know are in extra.
func (c *Client) adjust(ctx context.Context, s ScaleRequest, extra map[string]string) (*essapi.ScaleWithAdjustmentResponse, error) {
	const action = "ScaleWithAdjustment"
	switch {
	case s.ScalingGroupID == "":
		return nil, invalid(ess, action, "no scaling group given")
	case s.Delta < 1 || s.Delta > maxScaleDelta:
		return nil, invalid(ess, action, "%s: cannot add %d instances at once, only 1 to %d", s.ScalingGroupID, s.Delta, maxScaleDelta)
	case !validToken(s.ClientToken):
		return nil, invalid(ess, action, "%s: the client token must be 1 to %d ASCII characters", s.ScalingGroupID, maxClientToken)
	}
	return send(ctx, c, request[*essapi.ScaleWithAdjustmentResponse]{
		service: ess, action: action, response: essapi.CreateScaleWithAdjustmentResponse,
		build: func() requests.AcsRequest {
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

// Remove takes instances out of a group, releases them and lowers the desired capacity by as many, so that ESS does
// not replace them. Instances that are not in the group are ignored, and make the activity end as Warning. Protection
// from scale-in does not keep an instance (SetInstancesProtection speaks of activities of ESS itself). It returns the
// activity that does it.
//
// Without a ClientToken one is made up, which covers this call and its retries only.
func (c *Client) Remove(ctx context.Context, m RemoveRequest) (activityID string, err error) {
	const action = "RemoveInstances"
	if m.ClientToken == "" {
		m.ClientToken = uuid.NewString()
	}
	switch {
	case m.ScalingGroupID == "":
		return "", invalid(ess, action, "no scaling group given")
	case len(m.InstanceIDs) < 1 || len(m.InstanceIDs) > MaxRemoveBatch:
		return "", invalid(ess, action, "%s: cannot remove %d instances at once, only 1 to %d", m.ScalingGroupID, len(m.InstanceIDs), MaxRemoveBatch)
	case m.StopTimeout != 0 && (m.StopTimeout < minStopTimeout || m.StopTimeout > maxStopTimeout):
		return "", invalid(ess, action, "%s: cannot wait %v for instances to stop, only %v to %v", m.ScalingGroupID, m.StopTimeout, minStopTimeout, maxStopTimeout)
	case !validToken(m.ClientToken):
		return "", invalid(ess, action, "%s: the client token must be 1 to %d ASCII characters", m.ScalingGroupID, maxClientToken)
	}
	r, err := send(ctx, c, request[*essapi.RemoveInstancesResponse]{
		service: ess, action: action, response: essapi.CreateRemoveInstancesResponse,
		build: func() requests.AcsRequest {
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
