package ess

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// aim is what is known of whether a scaling group delivers the type and zone that a request names. That these parameters
// exist is known from the SDKs only (ScaleWithAdjustment 2014-08-28 is documented without them), so that it is found out:
// with the first purchase, by a plan where the cloud makes plans, and else by what the purchase brings. See probe.go.
//
// It holds for one scaling configuration: types that cannot be had in another's place say nothing about those of the next.
type aim struct {
	configuration string
	verdict       verdict
	// evidence is what the verdict is from.
	evidence evidence
	// probe is the token of the purchase that finds it out. Those after it wait until it has.
	probe string
	// bought: the probe was bought. There are no plans.
	bought bool
	// refusal is the code of a request that was refused for naming its offering, as it seemed.
	refusal string
}

// verdict is what was found out.
type verdict string

const (
	// unasked: nothing yet.
	unasked verdict = ""
	// honoured: what was named is what comes.
	honoured verdict = "honoured"
	// unproven: nothing came by which to tell. What comes is compared, as it is under any verdict.
	unproven verdict = "unproven"
	// ignored: the pool delivers what it likes, or refuses requests that name anything.
	ignored verdict = "ignored"
)

// evidence is what a pool's targeting was decided by.
type evidence string

const (
	byNothing  evidence = "none"
	byTag      evidence = "tag"
	byOffering evidence = "one_offering"
	byPlan     evidence = "plan"
	byDelivery evidence = "delivery"
	byRefusal  evidence = "refusal"
)

// keepAims forgets what is of another scaling configuration, or of no pool. Needs p.mu for writing.
func (p *Provider) keepAims(groups []alicloud.ScalingGroup) {
	aims := make(map[string]*aim, len(groups))
	for _, group := range groups {
		known := p.aims[group.ID]
		if known == nil || known.configuration != group.ActiveScalingConfigurationID {
			known = &aim{configuration: group.ActiveScalingConfigurationID, evidence: byNothing}
		}
		aims[group.ID] = known
	}
	p.aims = aims
}

// ignoresTargeting needs p.mu.
func (p *Provider) ignoresTargeting(poolID string) bool {
	known := p.aims[poolID]
	return known != nil && known.verdict == ignored
}

// evidenceFor is what the pool's targeting goes by. Needs p.mu.
func (p *Provider) evidenceFor(pool *pool) evidence {
	known := p.aims[pool.id]
	switch {
	case pool.targeting == targetSingle:
		return byOffering
	case pool.settings.Targeting != TargetingAuto:
		return byTag
	case known != nil:
		return known.evidence
	}
	return byNothing
}

// find enters what was found out, and lets the purchases go that waited for it. Needs p.mu for writing.
func (p *Provider) find(poolID string, found verdict, by evidence, reason string) {
	known := p.aims[poolID]
	if known == nil || known.verdict == ignored || known.verdict == found {
		return
	}
	known.verdict, known.evidence = found, by
	if found == ignored {
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolNotTargetable",
			"Pool %s %s: unless its tags say targeting=request, it is one node group from now on", poolID, reason)
		p.withdraw(poolID)
	} else {
		p.Events.Eventf(apiv1.EventTypeNormal, "SpotPoolTargeted", "Pool %s %s: type and zone are named in requests", poolID, reason)
	}
	p.endProbe(poolID)
}

// withdraw takes back purchases of offerings that are none any more, before they are sent. Core sees their pods again, and
// the pool as it is by then. Needs p.mu for writing.
func (p *Provider) withdraw(poolID string) {
	if pool := p.pools[poolID]; pool == nil || pool.settings.Targeting != TargetingAuto {
		return
	}
	for _, bought := range p.purchases {
		if bought.poolID == poolID && bought.targeting == targetRequest && bought.queued() && !bought.sending && !bought.attempts.uncertain {
			bought.cancelled += bought.outstanding()
		}
	}
	p.retally()
	p.Wake()
}

// judge compares what an activity brought with what it was asked for. Needs p.mu for writing.
func (p *Provider) judge(activity alicloud.Activity) {
	if note, ours := noteOf(activity); ours {
		p.compare(activity.ScalingGroupID, note, activity.CreatedInstances)
	}
}

// compare does so with instances. One that is bare proves nothing. Needs p.mu for writing.
func (p *Provider) compare(poolID string, asked purchaseNote, ids []string) {
	for _, id := range ids {
		instance, listed := p.instances[id]
		if !listed || isBare(instance) {
			continue
		}
		if asked.Purchase == PurchaseSpot && PurchaseOf(instance.SpotStrategy) == PurchaseOnDemand {
			p.compensated(instance)
		}
		known := p.aims[poolID]
		if asked.Targeting != targetRequest || known == nil || asked.Configuration != "" && asked.Configuration != known.configuration {
			continue
		}
		if came := offeringOf(instance); came.InstanceType != asked.InstanceType || came.Zone != asked.Zone {
			p.find(poolID, ignored, byDelivery, fmt.Sprintf("was asked for %s in %s and delivered %s in %s",
				asked.InstanceType, asked.Zone, came.InstanceType, came.Zone))
		} else if known.verdict != honoured {
			p.find(poolID, honoured, byDelivery, fmt.Sprintf("was asked for %s in %s and delivered it", asked.InstanceType, asked.Zone))
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
