package dryrun

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// Scale enters what would have been bought.
func (c *Cloud) Scale(ctx context.Context, request alicloud.ScaleRequest) (alicloud.Scaling, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.memory.tokens[request.ClientToken]; len(known) > 0 {
		return alicloud.Scaling{ActivityID: known[0]}, nil
	}
	like := c.memory.offering(request)
	activityID := activityPrefix + uuid.NewString()
	like.ScalingActivityID = activityID
	created := c.memory.buy(request.Delta, like)
	c.memory.enter(alicloud.Activity{
		ID: activityID, ScalingGroupID: request.ScalingGroupID, Metadata: request.Metadata,
		Adding: request.Delta, CreatedCapacity: request.Delta, CreatedInstances: created,
	}, request.ClientToken)
	c.memory.decide(ctx, Decision{
		Action: "ScaleWithAdjustment", Pool: request.ScalingGroupID, Count: request.Delta,
		InstanceType: like.InstanceType, Zone: like.ZoneID, SpotStrategy: like.SpotStrategy,
	})
	return alicloud.Scaling{ActivityID: activityID}, nil
}

// PlanScale answers that the purchase would bring what it asks for. The real call is not made: a service that does not know its mode buys.
func (c *Cloud) PlanScale(_ context.Context, request alicloud.ScaleRequest) (alicloud.Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	like := c.memory.offering(request)
	return alicloud.Plan{Answered: true, Allocations: []alicloud.Allocation{{
		InstanceType: like.InstanceType, ZoneID: like.ZoneID, SpotStrategy: like.SpotStrategy, Amount: request.Delta,
	}}}, nil
}

// offering returns an instance as the request would bring. What the request does not name is the first that the scaling group has.
func (m *memory) offering(request alicloud.ScaleRequest) instance {
	group := m.groups[request.ScalingGroupID]
	configuration := m.configurations[group.ActiveScalingConfigurationID]
	like := alicloud.ScalingInstance{
		ScalingGroupID: request.ScalingGroupID, LifecycleState: alicloud.LifecycleInService,
		InstanceType: cmp.Or(request.InstanceType, first(configuration.InstanceTypes)),
		ZoneID:       m.zones[cmp.Or(first(request.VSwitchIDs), first(group.VSwitchIDs))],
		SpotStrategy: cmp.Or(request.SpotStrategy, configuration.SpotStrategy),
	}
	return instance{ScalingInstance: like}
}

func first(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return of[0]
}

// enter keeps an activity that has ended well.
func (m *memory) enter(activity alicloud.Activity, token string) {
	m.forget()
	activity.Status, activity.Started, activity.Ended = alicloud.ActivitySuccessful, m.clock.Now(), m.clock.Now()
	m.activities[activity.ID] = activity
	m.tokens[token] = []string{activity.ID}
}

// Launch enters what would have been bought by RunInstances.
func (c *Cloud) Launch(ctx context.Context, request alicloud.LaunchRequest) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.memory.tokens[request.ClientToken]; len(known) > 0 {
		return known, nil
	}
	ids := c.memory.buy(request.Amount, instance{tags: request.Tags, ScalingInstance: alicloud.ScalingInstance{
		LifecycleState: alicloud.LifecycleUnattached, Unattached: true,
		InstanceType: request.InstanceType, ZoneID: request.ZoneID, SpotStrategy: request.SpotStrategy,
	}})
	c.memory.tokens[request.ClientToken] = ids
	c.memory.decide(ctx, Decision{
		Action: "RunInstances", Pool: request.Tags[api.TagInstancePool], Count: request.Amount, InstanceType: request.InstanceType, Zone: request.ZoneID, SpotStrategy: request.SpotStrategy,
	})
	return ids, nil
}

// Attach enters virtual instances into the scaling group, and says nothing of real ones.
func (c *Cloud) Attach(_ context.Context, request alicloud.AttachRequest) (activityID string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	activityID = activityPrefix + uuid.NewString()
	for _, id := range request.InstanceIDs {
		if each, virtual := c.memory.bought[id]; virtual {
			each.ScalingGroupID, each.Unattached, each.LifecycleState, each.ScalingActivityID = request.ScalingGroupID, false, alicloud.LifecycleInService, activityID
			c.memory.bought[id] = each
		}
	}
	c.memory.enter(alicloud.Activity{ID: activityID, ScalingGroupID: request.ScalingGroupID}, request.ClientToken)
	return activityID, nil
}

// Remove enters that the instances would have been removed.
func (c *Cloud) Remove(ctx context.Context, request alicloud.RemoveRequest) (activityID string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.remove(ctx, Decision{Action: "RemoveInstances", Pool: request.ScalingGroupID}, request.InstanceIDs)
	activityID = activityPrefix + uuid.NewString()
	c.memory.enter(alicloud.Activity{ID: activityID, ScalingGroupID: request.ScalingGroupID}, cmp.Or(request.ClientToken, activityID))
	return activityID, nil
}

// Delete enters that the instances would have been deleted.
func (c *Cloud) Delete(ctx context.Context, instanceIDs []string, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.remove(ctx, Decision{Action: "DeleteInstances"}, instanceIDs)
	return nil
}

// remove drops virtual instances, and remembers the real ones that would be gone, which are a decision.
func (m *memory) remove(ctx context.Context, decision Decision, ids []string) {
	for _, id := range ids {
		if isVirtual(id) {
			delete(m.bought, id)
		} else if _, known := m.removed[id]; !known {
			m.removed[id] = m.clock.Now()
			decision.Instances = append(decision.Instances, id)
		}
	}
	if decision.Count = len(decision.Instances); decision.Count > 0 {
		m.decide(ctx, decision)
	}
}
