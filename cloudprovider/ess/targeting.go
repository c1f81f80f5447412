package ess

import (
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// judge compares what came with what was asked. Where the cloud ignored type or zone the pool is not targetable, and
// becomes one node group. Needs p.mu for writing.
func (p *Provider) judge(activity alicloud.Activity) {
	note, ours := noteOf(activity)
	if !ours {
		return
	}
	for _, id := range activity.CreatedInstances {
		instance, listed := p.instances[id]
		if !listed || isBare(instance) {
			continue
		}
		if note.Purchase == PurchaseSpot && PurchaseOf(instance.SpotStrategy) == PurchaseOnDemand {
			p.compensated(instance)
		}
		if note.Targeting == targetRequest && !p.whole.Has(instance.ScalingGroupID) &&
			(instance.InstanceType != note.InstanceType || instance.ZoneID != note.Zone) {
			p.whole.Insert(instance.ScalingGroupID)
			p.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolNotTargetable",
				"Pool %s was asked for %s in %s and delivered %s in %s: unless its tags say targeting=request, it is one node group from now on",
				instance.ScalingGroupID, note.InstanceType, note.Zone, instance.InstanceType, instance.ZoneID)
		}
	}
}

// compensated tells, once per instance, that pay-as-you-go came where spot was asked for. Needs p.mu for writing.
func (p *Provider) compensated(instance alicloud.ScalingInstance) {
	p.reports.once("compensated/"+instance.ID, func() {
		compensatedInstances.WithLabelValues(instance.ScalingGroupID).Inc()
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotCompensatedWithOnDemand",
			"Pool %s delivered pay-as-you-go instance %s where spot was asked for: turn off CompensateWithOnDemand",
			instance.ScalingGroupID, instance.ID)
	})
}
