package ess

import (
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// unreadFor is for how long no pool is bought from because what was bought before of one cannot be read: the pods that are
// pending now may be those that it was bought for. After that the others go on without it.
const unreadFor = 2 * time.Minute

// block makes a pool unbuyable for what the provider knows of it, and enters that as a problem. Needs p.mu.
func (p *Provider) block(pool *pool, problems map[problem]string) {
	queue := p.queueOf(pool.id)
	if pool.group.DesiredCapacity == nil {
		queue.capacityOnly = false // it was mended
	}
	if pool.unbuyable != "" {
		problems[problem{pool.id, "unbuyable"}] = pool.unbuyable
	}
	if desired := pool.group.DesiredCapacity; desired != nil && *desired > pool.group.TotalCapacity && !p.awaitsAny(pool.id) {
		pool.unbuyable = fmt.Sprintf("its scaling group has a desired capacity of %d and %d instances: whenever it can it buys the rest by itself, "+
			"so that what is bought until then is bought twice. Call ModifyScalingGroup with DisableDesiredCapacity=true, or lower the capacity",
			*desired, pool.group.TotalCapacity)
		problems[problem{pool.id, "desired_capacity"}] = pool.unbuyable
	}
	if queue.capacityOnly {
		pool.unbuyable = "a purchase did no more than to raise the scaling group's desired capacity, so that nobody can tell what comes of it. " +
			"Call ModifyScalingGroup with DisableDesiredCapacity=true"
		problems[problem{pool.id, "desired_capacity"}] = pool.unbuyable
	}
	if congested := p.congested(pool.id); congested != "" {
		pool.unbuyable = congested
		problems[problem{pool.id, "congested"}] = congested
	}
	queue.noteRefusals(pool.id, p.Clock.Now(), problems)
	if _, unread := p.unreadSince[pool.id]; unread {
		pool.unbuyable = "its activities have not been read" // a problem of its own
	}
	for poolID, since := range p.unreadSince {
		if p.Clock.Since(since) < unreadFor {
			pool.unbuyable = "what was bought before of pool " + poolID + " has not been read"
		}
	}
}

// awaitsAny says whether something that was asked of the pool has still to come. Needs p.mu.
func (p *Provider) awaitsAny(poolID string) bool {
	for _, bought := range p.purchases {
		if bought.poolID == poolID && !bought.accepted.IsZero() && bought.outstanding() > 0 {
			return true
		}
	}
	return false
}

// unbuyable says why a scaling group would refuse to grow.
func unbuyable(group alicloud.ScalingGroup) string {
	switch {
	case group.LifecycleState != "" && group.LifecycleState != "Active":
		return "the scaling group is " + group.LifecycleState
	case group.SystemSuspended:
		return "Alibaba Cloud has suspended the scaling group (SystemSuspended)"
	case slices.Contains(group.SuspendedProcess, "ScaleOut"):
		return "its process ScaleOut is suspended"
	}
	return ""
}

// hazards are settings of a scaling group that buy behind the autoscaler's back, or otherwise than it thinks.
//
// CompensateWithOnDemand and SpotInstanceRemedy take effect only where MultiAZPolicy is COST_OPTIMIZED; what is to be
// bought pay-as-you-go whatever the scaling configuration says may stand in any group (doc comments of CreateScalingGroup,
// ESS 2022-02-22, alibabacloud-csharp-sdk).
func (p *pool) hazards() map[string]string {
	found, group := map[string]string{}, p.group
	if p.purchase != PurchaseSpot {
		return found
	}
	if group.MultiAZPolicy == alicloud.MultiAZCostOptimized {
		if group.CompensateWithOnDemand {
			found["compensate_with_on_demand"] = "CompensateWithOnDemand is on: the scaling group buys pay-as-you-go where spot is out"
		}
		if group.SpotInstanceRemedy {
			found["spot_instance_remedy"] = "SpotInstanceRemedy is on: the scaling group replaces reclaimed instances by itself, so they are bought twice"
		}
	}
	if group.OnDemandBase > 0 {
		found["on_demand_base"] = fmt.Sprintf("OnDemandBaseCapacity is %d: the scaling group buys so many instances pay-as-you-go before it buys spot. Set it to 0",
			group.OnDemandBase)
	}
	if group.OnDemandPercentage > 0 {
		found["on_demand_percentage"] = fmt.Sprintf("OnDemandPercentageAboveBaseCapacity is %d%%%s: so much of what is bought as spot comes pay-as-you-go. Set it to 0",
			group.OnDemandPercentage, unsaid(group))
	}
	if group.SpotAutoReplaceOnDemand {
		found["spot_auto_replace"] = "SpotAutoReplaceOnDemand is on: the scaling group releases pay-as-you-go instances under their pods to buy spot in their place. Turn it off"
	}
	if group.DesiredCapacity != nil {
		found["desired_capacity"] = "the scaling group has a desired capacity: it replaces reclaimed instances by itself, so they are bought twice, " +
			"and takes one purchase at a time. Call ModifyScalingGroup with DisableDesiredCapacity=true"
	}
	return found
}

// unsaid explains a percentage that may be nobody's choice.
func unsaid(group alicloud.ScalingGroup) string {
	if group.MultiAZPolicy == alicloud.MultiAZComposable && group.OnDemandPercentage == 100 {
		return " (the default where MultiAZPolicy is COMPOSABLE)"
	}
	return ""
}
