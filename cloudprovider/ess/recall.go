package ess

import (
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// recallFor is for how long after its end a new process still looks after a purchase of a former one. A gang that came
// short longer ago keeps its nodes: by now they may run something else, and scale-down finds those that do not.
const recallFor = 10 * time.Minute

// recollection is how a purchase of a former process was found.
type recollection struct {
	// blind: its activity has no note. It may be anybody's, and its offering is a guess until its instances are listed.
	blind bool
	// inspected: the Nodes of what has to be given back were looked at. spared are the instances that stay: pods run there.
	inspected bool
	spared    sets.Set[string]
}

func (r *recollection) isBlind() bool { return r != nil && r.blind }

func (r *recollection) spares(id string) bool { return r != nil && r.spared.Has(id) }

// recall takes up the purchases of a former process from the activities of a pool that this one sees for the first time:
// those under way, and those that ended lately of which something is left to be seen to. Needs p.mu for writing.
func (p *Provider) recall(activities []alicloud.Activity, arrivedBy map[string][]string, now time.Time) {
	for _, activity := range activities {
		if p.claims(activity) || activity.Done() && !endedLately(activity, now) {
			continue
		}
		note, noted := noteOf(activity)
		if !noted {
			if activity.Adding == 0 {
				continue
			}
			note = purchaseNote{Token: activity.ID, Count: activity.Adding}
		}
		if p.isOthers(note) {
			note.Atomic = false // what came of it is not ours to give back
		}
		recalled := recollect(activity, note, !noted, now)
		if !activity.Ended.IsZero() && activity.Done() {
			recalled.delivery.endedAt = activity.Ended
		}
		p.takeStock(recalled, &activity, arrivedBy[activity.ID], now)
		if p.writeOff(recalled, now); p.isOver(recalled, now) && !recalled.broken() {
			continue
		}
		p.purchases[note.Token] = recalled
		klog.Infof("Took up purchase %s of %d in pool %s, activity %s (%s)", note.Token, note.Count,
			recalled.poolID, activity.ID, activity.Status)
	}
}

func recollect(activity alicloud.Activity, note purchaseNote, blind bool, now time.Time) *purchase {
	recalled := &purchase{
		poolID: activity.ScalingGroupID, atomic: note.Atomic, requested: activity.Started,
		offering:  offering{note.InstanceType, note.Zone, note.Purchase},
		targeting: note.Targeting, configuration: note.Configuration, activityID: activity.ID, delivery: newDelivery(),
		request:  alicloud.ScaleRequest{ScalingGroupID: activity.ScalingGroupID, Delta: note.Count, ClientToken: note.Token},
		recalled: &recollection{blind: blind, spared: sets.New[string]()},
	}
	if recalled.requested.IsZero() {
		recalled.requested = now
	}
	recalled.accepted = recalled.requested
	return recalled
}

// writeOff enters what an activity that has ended did not bring: its former process has told core and the operator. Needs
// p.mu for writing.
func (p *Provider) writeOff(recalled *purchase, now time.Time) {
	if !recalled.delivery.ended() {
		return
	}
	missing := recalled.outstanding() - recalled.delivery.unlistedYet(recalled.outstanding(), now)
	if missing <= 0 {
		return
	}
	recalled.lost += missing
	if recalled.atomic {
		_, code, message := recalled.delivery.failure()
		recalled.lost = recalled.request.Delta
		recalled.failure = &cloudprovider.InstanceErrorInfo{ErrorCode: code, ErrorMessage: message}
	}
}

// claims says whether the activity is that of a purchase or a removal that is known. Needs p.mu.
func (p *Provider) claims(activity alicloud.Activity) bool {
	if note, ours := noteOf(activity); ours && p.purchases[note.Token] != nil {
		return true
	}
	for _, bought := range p.purchases {
		if bought.activityID == activity.ID {
			return true
		}
	}
	for _, leaving := range p.removals {
		if leaving.activityID == activity.ID {
			return true
		}
	}
	return false
}

func endedLately(activity alicloud.Activity, now time.Time) bool {
	at := activity.Ended
	if at.IsZero() {
		at = activity.Started
	}
	return now.Sub(at) <= recallFor
}

// guess has purchases whose offering nobody knows count for that of their instances, else for the cheapest of the pool,
// which is the likeliest to have been bought. Needs p.mu for writing.
func (p *Provider) guess() {
	for _, bought := range p.purchases {
		if pool := p.pools[bought.poolID]; bought.recalled.isBlind() && pool != nil {
			bought.targeting, bought.offering = pool.targeting, p.likeliest(bought, pool)
		}
	}
}

// likeliest needs p.mu.
func (p *Provider) likeliest(bought *purchase, pool *pool) offering {
	for id := range bought.delivery.arrived {
		if instance, listed := p.instances[id]; listed && !isBare(instance) {
			return offeringOf(instance)
		}
	}
	return slices.MinFunc(pool.offerings, func(a, b *knownOffering) int {
		priceOfA, knownA := p.Prices.Price(a.priced())
		priceOfB, knownB := p.Prices.Price(b.priced())
		switch {
		case knownA != knownB && knownA, knownA && priceOfA < priceOfB:
			return -1
		case knownA != knownB, knownA && priceOfA > priceOfB:
			return 1
		}
		return 0
	}).offering
}

// inspect spares, of what a former process's broken gangs brought, the instances on whose Nodes there are pods. It is
// called with all Nodes, before anything is given back.
func (p *Provider) inspect(nodes []*apiv1.Node) {
	suspects := p.suspects()
	if suspects.Len() == 0 {
		return
	}
	occupied := sets.New[string]()
	for _, node := range nodes {
		if id := p.instanceIDOf(node); suspects.Has(id) && (p.Occupied == nil || p.Occupied(node)) {
			occupied.Insert(id)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bought := range p.purchases {
		if bought.recalled == nil || !bought.broken() || bought.recalled.inspected {
			continue
		}
		spared := bought.delivery.arrived.Intersection(occupied)
		bought.recalled.inspected, bought.recalled.spared = true, spared
		bought.delivery.arrived = bought.delivery.arrived.Difference(spared)
		if spared.Len() > 0 {
			klog.Warningf("Pool %s: of a gang that came short %v stay, for pods run on them", bought.poolID, sets.List(spared))
		}
	}
}

// suspects are the instances that would be given back if nobody was on them.
func (p *Provider) suspects() sets.Set[string] {
	p.mu.RLock()
	defer p.mu.RUnlock()
	suspects := sets.New[string]()
	for _, bought := range p.purchases {
		if bought.recalled != nil && bought.broken() && !bought.recalled.inspected {
			suspects = suspects.Union(bought.delivery.arrived)
		}
	}
	return suspects
}

// undelivered are the instances of a purchase that are no capacity: what is left of a gang that came short, until it is given
// back, and what the cloud rolls back. Needs p.mu.
func (p *Provider) undelivered(bought *purchase) sets.Set[string] {
	if bought.broken() {
		return bought.delivery.rolledBack.Union(p.returnable(bought))
	}
	return bought.delivery.rolledBack
}

// rollBack gives back what a broken atomic purchase brought, and says whether any of it is left. Needs p.mu.
func (p *Provider) rollBack(bought *purchase) (left bool) {
	if !bought.broken() {
		return false
	}
	if bought.recalled != nil && !bought.recalled.inspected {
		return true
	}
	var ids []string
	for id := range p.returnable(bought) {
		left = true
		if !p.isLeaving(p.instances[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseRolledBack",
			"Giving back %d of %d instances of %s: all or nothing was asked for", len(ids), bought.request.Delta,
			bought.offering.groupID(bought.poolID))
		p.remover.giveBack(bought.poolID, ids)
	}
	return left
}
