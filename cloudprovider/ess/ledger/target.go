package ledger

import (
	"fmt"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

// CheckTimeout is how long after its acceptance a purchase is waited for that was sent to check what its pool delivers.
const CheckTimeout = 2 * time.Minute

// finding is whether a scaling group delivers the instance type and zone that a request names.
type finding string

const (
	// unchecked: nothing is known yet.
	unchecked finding = ""
	// honoured: what was named was planned or delivered.
	honoured finding = "honoured"
	// unproven: the check had no result. What is delivered is compared with the request, as it is with any finding.
	unproven finding = "unproven"
	// ignored: the pool delivers something else, or refuses requests that name anything.
	ignored finding = "ignored"
)

// basis is what a pool's targeting was decided by, as in the metric gpu_spot_pool_targeting.
type basis string

const (
	byNothing  basis = "none"
	byTag      basis = "tag"
	byOffering basis = "one_offering"
	byPlan     basis = "plan"
	byDelivery basis = "delivery"
	byRefusal  basis = "refusal"
)

// target is what is known about whether a scaling group delivers the instance type and zone that a request names. That these
// parameters exist is known from the SDKs only (ScaleWithAdjustment 2014-08-28 is documented without them), so it is checked.
//
// The first purchase from a pool, and from each new scaling configuration of it, is the check. Before it is sent, ESS is
// asked to plan it. A cloud that makes no plans ignores that and buys, so no more is asked for than one instance, which is
// wanted anyway. It counts as the purchase that it is, and the rest follows once that instance shows what the pool delivers.
// An atomic purchase is not split.
//
// A finding holds for one scaling configuration: that other instance types were delivered says nothing about the next one.
type target struct {
	state  *state
	poolID string
	book   book

	configuration string
	finding       finding
	basis         basis
	// check is the token of the purchase that is the check. Purchases after it wait until there is a finding.
	check string
	// checkBought: the purchase that is the check was accepted, so there are no plans.
	checkBought bool
	// refusal is the code with which a request was refused, as it seems for naming an offering.
	refusal string
}

// reset forgets what was found out about another scaling configuration.
func (t *target) reset(configuration string) {
	if t.basis == "" || t.configuration != configuration {
		*t = target{state: t.state, poolID: t.poolID, book: t.book, configuration: configuration, basis: byNothing}
	}
}

// isAuto returns whether the provider has to find out how the pool can be targeted.
func (t *target) isAuto() bool {
	known := t.state.facts.Pools[t.poolID]
	return known != nil && known.Settings.Targeting == settings.TargetingAuto
}

// basisOf returns what the targeting of the pool was decided by.
func (t *target) basisOf(known *pool.Pool) basis {
	switch {
	case known.Targeting == pool.TargetSingle:
		return byOffering
	case known.Targeting == pool.TargetLaunch, known.Settings.Targeting != settings.TargetingAuto:
		return byTag
	}
	return t.basis
}

// startCheck makes the purchase the check, if one is needed and none is under way.
func (t *target) startCheck(p *Purchase) {
	if !t.isAuto() || p.targeting != pool.TargetRequest || t.finding != unchecked || t.check != "" {
		return
	}
	if p.request.Delta > 1 && !p.forGangs() {
		t.book.split(p)
	}
	p.plan, t.check, t.checkBought = true, p.request.ClientToken, false
}

// holdsUp returns whether the purchase has to wait for the result of the check.
func (t *target) holdsUp(p *Purchase) bool {
	return t.check != "" && t.check != p.request.ClientToken && p.targeting == pool.TargetRequest
}

// planned compares a plan with the purchase, and returns whether the purchase is to be sent.
func (t *target) planned(p *Purchase, plan alicloud.Plan) (send bool) {
	if t.configuration != p.configuration {
		t.book.rejoin(p)
		t.renew(p)
		return true // the plan says nothing about the pool as it is now
	}
	asked := p.offering
	other := slices.IndexFunc(plan.Allocations, func(a alicloud.Allocation) bool {
		return a.InstanceType != "" && a.InstanceType != asked.InstanceType || a.ZoneID != "" && a.ZoneID != asked.Zone
	})
	if other >= 0 {
		instead := plan.Allocations[other]
		p.sending = false
		t.conclude(ignored, byPlan, fmt.Sprintf("was asked for %s in %s and plans to deliver %s in %s",
			asked.InstanceType, asked.Zone, instead.InstanceType, instead.ZoneID))
		return false
	}
	t.book.rejoin(p)
	t.renew(p)
	if len(plan.Allocations) > 0 {
		t.conclude(honoured, byPlan, fmt.Sprintf("was asked for %s in %s and plans to deliver it", asked.InstanceType, asked.Zone))
	} else {
		t.endCheck() // an empty plan proves nothing: the next purchase is planned too
	}
	return true
}

// renew turns a plan into a purchase. It gets a new token, because the cloud may remember the token of the plan.
func (t *target) renew(p *Purchase) {
	p.plan, p.attempts.uncertain, p.attempts.refusal = false, false, nil
	t.resign(p)
}

// resign gives the purchase a new token. If it is the check, it stays so.
func (t *target) resign(p *Purchase) {
	former := p.request.ClientToken
	t.book.resign(p)
	if t.check == former {
		t.check = p.request.ClientToken
	}
}

// separate makes each gang of the purchase, of which nothing was carried out, a purchase of its own, which is sent anew.
func (t *target) separate(p *Purchase) {
	sizes := p.gangs
	p.atomic, p.alone, p.gangs, p.plan, p.rest, p.requested = true, true, nil, false, "", t.state.config.Clock.Now()
	for _, size := range sizes[1:] {
		part := *p
		part.request.Delta, part.delivery = size, newDelivery()
		part.sign()
		t.book.add(&part)
	}
	p.request.Delta = sizes[0]
	t.resign(p)
	t.state.wake()
}

// conclude enters a finding and ends the check. The reason completes the sentence "Pool <id> …".
func (t *target) conclude(found finding, by basis, reason string) {
	if t.finding == ignored || t.finding == found {
		return
	}
	t.finding, t.basis = found, by
	if found == ignored {
		t.state.config.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolNotTargetable",
			"Pool %s %s: unless its tags say targeting=request, it is one node group from now on. With the tag %s=%s its offerings are bought by RunInstances, as is documented",
			t.poolID, reason, api.TagPurchase, settings.PurchaseByLaunch)
		t.cancelUnsent()
	} else {
		t.state.config.Events.Eventf(apiv1.EventTypeNormal, "SpotPoolTargeted", "Pool %s %s: type and zone are named in requests", t.poolID, reason)
	}
	t.endCheck()
}

// cancelUnsent cancels purchases of offerings that are no node groups any more. Core then finds their pods pending again, and
// the pool as one node group.
func (t *target) cancelUnsent() {
	if !t.isAuto() {
		return
	}
	for _, p := range t.book {
		if p.targeting == pool.TargetRequest && p.queued() && !p.sending && !p.attempts.uncertain {
			p.cancelled += p.missing()
			p.abandoned = p.bundle != ""
			t.state.abandonBundle(p)
		}
	}
	t.state.wake()
}

// endCheck has the purchases go on that waited for the check. Where there is no finding, the first of them is the next check.
func (t *target) endCheck() {
	waited := t.book.filter(func(p *Purchase) bool { return p.queued() && t.holdsUp(p) })
	t.check = ""
	if len(waited) == 0 {
		return
	}
	for _, p := range waited {
		p.requested = t.state.config.Clock.Now() // the time until now was not spent waiting for the cloud
	}
	t.startCheck(waited[0])
	t.state.wake()
}

// noteBought remembers whether the check was bought, while its purchase is in the book.
func (t *target) noteBought() {
	if p := t.book[t.check]; p != nil {
		t.checkBought = !p.accepted.IsZero()
	}
}

// expireCheck ends a check that has no result.
func (t *target) expireCheck(now time.Time) {
	if t.check == "" {
		return
	}
	p := t.book[t.check]
	switch {
	case p != nil && (p.queued() || p.failure == nil && !p.accepted.IsZero() && now.Sub(p.accepted) < CheckTimeout): // wait
	case t.checkBought:
		t.conclude(unproven, byNothing, "has bought one instance to tell by, which was not delivered or does not tell")
	default: // it was cancelled before it was sent, or refused
		t.endCheck()
	}
}

// refuses returns whether the purchase seems to be refused because it names its offering, and enters that finding. Only the
// refusal of the check counts: the pool accepted such requests before any later one.
func (t *target) refuses(p *Purchase, refusal error) bool {
	if t.check == "" || t.check != p.request.ClientToken || alicloud.ClassOf(refusal) != alicloud.Invalid ||
		codeOf(refusal) == alicloud.CodeInvalidRequest {
		return false
	}
	t.refusal = codeOf(refusal)
	t.conclude(ignored, byRefusal, fmt.Sprintf("refuses to be asked for %s in %s (%v)", p.offering.InstanceType, p.offering.Zone, refusal))
	return true
}

// retract takes back the finding of refuses where the pool refuses requests that name no offering with the same code.
func (t *target) retract(p *Purchase, refusal error) {
	if p.targeting != pool.TargetWhole || t.basis != byRefusal || t.refusal != codeOf(refusal) {
		return
	}
	t.finding, t.basis = unproven, byNothing
	t.state.config.Events.Eventf(apiv1.EventTypeNormal, "SpotPoolTargeted", "Pool %s refuses requests that name no type and zone just as well (%s): they are named again",
		t.poolID, t.refusal)
}

// compare compares instances with what was asked for. Instances that are listed incompletely prove nothing.
func (t *target) compare(asked Note, ids []string) {
	for _, id := range ids {
		instance, listed := t.state.facts.Instances[id]
		if !listed || snapshot.IsIncomplete(instance) {
			continue
		}
		delivered := snapshot.OfferingOf(instance)
		if asked.offering().Spot && !delivered.Spot {
			t.reportOnDemand(instance)
		}
		if asked.Targeting != pool.TargetRequest || asked.Configuration != "" && asked.Configuration != t.configuration {
			continue
		}
		if delivered.InstanceType != asked.InstanceType || delivered.Zone != asked.Zone {
			t.conclude(ignored, byDelivery, fmt.Sprintf("was asked for %s in %s and delivered %s in %s",
				asked.InstanceType, asked.Zone, delivered.InstanceType, delivered.Zone))
		} else if t.finding != honoured {
			t.conclude(honoured, byDelivery, fmt.Sprintf("was asked for %s in %s and delivered it", asked.InstanceType, asked.Zone))
		}
	}
}

// reportOnDemand reports, once for each instance, that an on-demand instance was delivered in place of a spot instance.
func (t *target) reportOnDemand(instance alicloud.ScalingInstance) {
	t.state.config.Reporter.Once("compensated/"+instance.ID, func() {
		compensatedInstances.WithLabelValues(instance.ScalingGroupID).Inc()
		t.state.config.Events.Eventf(apiv1.EventTypeWarning, "SpotCompensatedWithOnDemand",
			"Pool %s delivered pay-as-you-go instance %s where spot was asked for: turn off CompensateWithOnDemand",
			instance.ScalingGroupID, instance.ID)
	})
}

// reportNote reports, once for each activity, that it came back without its note. Where notes are lost, a later process has to
// identify purchases by time, count and instances.
func (t *target) reportNote(p *Purchase, activity alicloud.Activity) {
	if _, noted := NoteOf(activity); noted || p.noteMissing {
		return
	}
	p.noteMissing = true
	missedNotes.WithLabelValues(p.poolID).Inc()
	if p.restored.isGuess() {
		klog.InfoS("Found an activity without a note. Its instances count as the likeliest offering until they are listed",
			"activity", activity.ID, "pool", p.poolID, "instances", activity.Adding)
		return
	}
	klog.InfoS("An activity came back without its note", "activity", activity.ID, "pool", p.poolID, "metadata", activity.Metadata)
	t.state.config.Reporter.Once("notes/"+p.poolID, func() {
		t.state.config.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseNoteLost", "Activity %s of pool %s came back without the note that says what it is for: "+
			"after a restart purchases under way are told by their times, counts and instances", activity.ID, p.poolID)
	})
}
