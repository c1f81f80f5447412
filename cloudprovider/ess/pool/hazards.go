package pool

import (
	"fmt"
	"slices"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
)

// suspended says why the scaling group would refuse to grow; empty where it would not.
func suspended(group alicloud.ScalingGroup) string {
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

// Hazards returns the settings of the scaling group with which ESS buys by itself, or buys something else than was asked for.
//
// CompensateWithOnDemand and SpotInstanceRemedy take effect only where MultiAZPolicy is COST_OPTIMIZED. The number or
// percentage of instances that ESS buys pay-as-you-go whatever the scaling configuration says may be set in any scaling
// group (doc comments of CreateScalingGroup, ESS 2022-02-22, alibabacloud-csharp-sdk).
func (p *Pool) Hazards() map[problem.Reason]string {
	found, group := map[problem.Reason]string{}, p.Group
	if !p.Spot {
		return found
	}
	if group.MultiAZPolicy == alicloud.MultiAZCostOptimized {
		if group.CompensateWithOnDemand {
			found[problem.CompensateWithOnDemand] = "CompensateWithOnDemand is on: the scaling group buys pay-as-you-go where spot is out"
		}
		if group.SpotInstanceRemedy {
			found[problem.SpotInstanceRemedy] = "SpotInstanceRemedy is on: the scaling group replaces reclaimed instances by itself, so they are bought twice"
		}
	}
	if group.OnDemandBase > 0 {
		found[problem.OnDemandBase] = fmt.Sprintf("OnDemandBaseCapacity is %d: the scaling group buys so many instances pay-as-you-go before it buys spot. Set it to 0",
			group.OnDemandBase)
	}
	if group.OnDemandPercentage > 0 {
		found[problem.OnDemandPercentage] = fmt.Sprintf("OnDemandPercentageAboveBaseCapacity is %d%%%s: so much of what is bought as spot comes pay-as-you-go. Set it to 0",
			group.OnDemandPercentage, defaultPercentage(group))
	}
	if group.SpotAutoReplaceOnDemand {
		found[problem.SpotAutoReplace] = "SpotAutoReplaceOnDemand is on: the scaling group releases pay-as-you-go instances under their pods to buy spot in their place. Turn it off"
	}
	if group.DesiredCapacity != nil {
		found[problem.DesiredCapacity] = "the scaling group has a desired capacity: it replaces reclaimed instances by itself, so they are bought twice, " +
			"and takes one purchase at a time. Call ModifyScalingGroup with DisableDesiredCapacity=true"
	}
	return found
}

// defaultPercentage explains a percentage that nobody may have chosen.
func defaultPercentage(group alicloud.ScalingGroup) string {
	if group.MultiAZPolicy == alicloud.MultiAZComposable && group.OnDemandPercentage == 100 {
		return " (the default where MultiAZPolicy is COMPOSABLE)"
	}
	return ""
}
