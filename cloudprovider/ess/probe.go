package ess

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// probeFor is how long after its acceptance a purchase is waited for that was bought to find out what its pool delivers.
const probeFor = 2 * time.Minute

// The first purchase of a pool, and of each new scaling configuration of it, finds out whether type and zone are honoured.
// Before it is sent the cloud is asked to plan it. A cloud that makes no plans ignores that and buys, so that no more is
// asked for than one instance that is wanted anyway; it counts as the purchase that it is, and the rest follows once that
// instance tells what the pool delivers. A gang is not parted: it is asked for as a whole.

// probeWith makes the purchase the one that finds out, if nothing is known of its pool and no other does. Needs p.mu for
// writing.
func (p *Provider) probeWith(bought *purchase) error {
	pool, known := p.pools[bought.poolID], p.aims[bought.poolID]
	if pool == nil || pool.settings.Targeting != TargetingAuto || bought.targeting != targetRequest ||
		known == nil || known.verdict != unasked || known.probe != "" {
		return nil
	}
	if bought.request.Delta > 1 && !bought.atomic {
		rest := *bought
		rest.request.Delta, rest.delivery = bought.request.Delta-1, newDelivery()
		if err := rest.sign(); err != nil {
			return err
		}
		p.purchases[rest.request.ClientToken] = &rest
		delete(p.purchases, bought.request.ClientToken)
		bought.request.Delta = 1
		if err := bought.sign(); err != nil {
			return err
		}
		p.purchases[bought.request.ClientToken] = bought
		bought.rest = rest.request.ClientToken
	}
	bought.plan, known.probe, known.bought = true, bought.request.ClientToken, false
	return nil
}

// awaits says whether the purchase waits for what another one finds out. Needs p.mu.
func (p *Provider) awaits(bought *purchase) bool {
	known := p.aims[bought.poolID]
	return known != nil && known.probe != "" && known.probe != bought.request.ClientToken && bought.targeting == targetRequest
}

// askForPlan asks what the purchase would bring, and says whether it is still to be sent.
func (p *Provider) askForPlan(ctx context.Context, bought *purchase) (send bool) {
	if !bought.plan {
		return true
	}
	plan, err := p.Cloud.PlanScale(ctx, bought.request)
	if p.renounceParallel(bought, err) {
		plan, err = p.Cloud.PlanScale(ctx, bought.request)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && alicloud.Refuses(err, "ExecutionMode") && !bought.attempts.uncertain && !alicloud.IsUncertain(err):
		return p.renew(bought) // there are no plans
	case err != nil:
		bought.sending = false
		p.notAccepted(bought, err)
		return false
	case !plan.Answered:
		klog.Infof("Pool %s makes no plans: it has bought what was to be planned, and what comes will tell what it delivers", bought.poolID)
		bought.sending = false
		p.accept(bought, plan.Scaling)
		return false
	}
	return p.planned(bought, plan)
}

// planned compares a plan with what was asked for, and says whether the purchase is to be sent. Needs p.mu for writing.
func (p *Provider) planned(bought *purchase, plan alicloud.Plan) (send bool) {
	asked, known := bought.offering, p.aims[bought.poolID]
	if known == nil || known.configuration != bought.configuration {
		p.rejoin(bought)
		return p.renew(bought) // it says nothing about the pool as it is now
	}
	other := slices.IndexFunc(plan.Allocations, func(a alicloud.Allocation) bool {
		return a.InstanceType != "" && a.InstanceType != asked.InstanceType || a.ZoneID != "" && a.ZoneID != asked.Zone
	})
	if other >= 0 {
		instead := plan.Allocations[other]
		bought.sending = false
		p.find(bought.poolID, ignored, byPlan, fmt.Sprintf("was asked for %s in %s and plans to deliver %s in %s",
			asked.InstanceType, asked.Zone, instead.InstanceType, instead.ZoneID))
		return false
	}
	p.rejoin(bought)
	if !p.renew(bought) {
		return false
	}
	if len(plan.Allocations) > 0 {
		p.find(bought.poolID, honoured, byPlan, fmt.Sprintf("was asked for %s in %s and plans to deliver it", asked.InstanceType, asked.Zone))
	} else {
		p.endProbe(bought.poolID) // a plan of nothing proves nothing: the next purchase asks again
	}
	return true
}

// rejoin adds to the purchase what was parted from it: nothing has been bought. Needs p.mu for writing.
func (p *Provider) rejoin(bought *purchase) {
	if rest := p.purchases[bought.rest]; rest != nil && rest.queued() && !rest.sending {
		bought.request.Delta += rest.outstanding()
		delete(p.purchases, bought.rest)
	}
	bought.rest = ""
}

// renew makes a purchase of what was a plan, under a token of its own: the cloud may remember that of the plan. It says
// whether that could be done. Needs p.mu for writing.
func (p *Provider) renew(bought *purchase) bool {
	former := bought.request.ClientToken
	bought.plan, bought.attempts.uncertain, bought.attempts.refusal = false, false, nil
	if err := bought.sign(); err != nil {
		bought.sending = false
		klog.Errorf("Pool %s: describe the purchase: %v", bought.poolID, err)
		return false
	}
	delete(p.purchases, former)
	p.purchases[bought.request.ClientToken] = bought
	if known := p.aims[bought.poolID]; known != nil && known.probe == former {
		known.probe = bought.request.ClientToken
	}
	return true
}

// endProbe lets the purchases go that waited. Where nothing was found out the first of them is the next to find it out.
// Needs p.mu for writing.
func (p *Provider) endProbe(poolID string) {
	var waited []*purchase
	for _, bought := range p.purchases {
		if bought.poolID == poolID && bought.queued() && p.awaits(bought) {
			waited = append(waited, bought)
		}
	}
	p.aims[poolID].probe = ""
	if len(waited) == 0 {
		return
	}
	slices.SortFunc(waited, func(a, b *purchase) int {
		return cmp.Or(a.requested.Compare(b.requested), strings.Compare(a.request.ClientToken, b.request.ClientToken))
	})
	for _, bought := range waited {
		bought.requested = p.Clock.Now() // it was not the cloud that let them wait
	}
	if err := p.probeWith(waited[0]); err != nil {
		klog.Errorf("Pool %s: describe the purchase: %v", poolID, err)
	}
	p.Wake()
}

// settleProbes ends those that find out nothing. Needs p.mu for writing.
func (p *Provider) settleProbes(now time.Time) {
	for poolID, known := range p.aims {
		if known.probe == "" {
			continue
		}
		bought := p.purchases[known.probe]
		awaited := bought != nil && (bought.queued() || bought.failure == nil && !bought.accepted.IsZero() && now.Sub(bought.accepted) < probeFor)
		switch {
		case awaited:
		case known.bought:
			p.find(poolID, unproven, byNothing, "has bought one instance to tell by, which did not come or does not tell")
		default: // it was taken back before it was sent, or refused
			p.endProbe(poolID)
		}
	}
}

// noteProbes notes which probes were bought, while their purchases are there. Needs p.mu for writing.
func (p *Provider) noteProbes() {
	for _, known := range p.aims {
		if bought := p.purchases[known.probe]; bought != nil {
			known.bought = !bought.accepted.IsZero()
		}
	}
}

// refusesTargeting says whether the purchase seems to be refused for naming its offering, and makes the pool one node group
// then. Only of the first purchase that is believed: what comes later and is refused had been taken before. Needs p.mu for
// writing.
func (p *Provider) refusesTargeting(bought *purchase, refusal error) bool {
	known := p.aims[bought.poolID]
	if known == nil || known.probe != bought.request.ClientToken || alicloud.ClassOf(refusal) != alicloud.Invalid ||
		codeOf(refusal) == alicloud.CodeInvalidRequest {
		return false
	}
	known.refusal = codeOf(refusal)
	p.find(bought.poolID, ignored, byRefusal, fmt.Sprintf("refuses to be asked for %s in %s (%v)", bought.offering.InstanceType, bought.offering.Zone, refusal))
	return true
}

// acquit takes back that a pool refuses requests for naming an offering, where it refuses those that name none alike. Needs
// p.mu for writing.
func (p *Provider) acquit(bought *purchase, refusal error) {
	known := p.aims[bought.poolID]
	if known == nil || bought.targeting != targetWhole || known.evidence != byRefusal || known.refusal != codeOf(refusal) {
		return
	}
	known.verdict, known.evidence = unproven, byNothing
	p.Events.Eventf(apiv1.EventTypeNormal, "SpotPoolTargeted", "Pool %s refuses requests that name no type and zone just as well (%s): they are named again",
		bought.poolID, known.refusal)
}
