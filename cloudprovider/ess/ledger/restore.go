package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/pricing"
)

// restoreFor is how long after its end a purchase of a former process is still looked after. An atomic purchase that came
// short longer ago keeps its nodes: they may run something else by now, and scale-down finds those that do not.
const restoreFor = 10 * time.Minute

// restored says how a purchase of a former process was found.
type restored struct {
	// guess: the activity has no note. Anybody may have bought, and the offering is a guess until the instances are listed.
	guess bool
}

func (r *restored) isGuess() bool { return r != nil && r.guess }

// restore enters the purchases of former processes from the activities of a pool that is new to this process: those under
// way, and those that ended lately and are not over.
func (r *reconciliation) restore(activities []alicloud.Activity) {
	for _, activity := range activities {
		if r.account.owns(activity) || activity.Done() && !endedLately(activity, r.at) {
			continue
		}
		note, noted := NoteOf(activity)
		if !noted {
			if activity.Adding == 0 || r.attached(activity) {
				continue
			}
			note = Note{Token: activity.ID, Count: activity.Adding}
		}
		if note.IsOfAnother(r.account.state.config.Owner) {
			note.Atomic = false // another installation gives back what came of it
		}
		isLaunch := note.Targeting == pool.TargetLaunch
		if isLaunch {
			r.account.knownLaunches.Insert(note.Token)
			if r.at.Sub(activity.Ended) > shortfallTime { // what it lacks now was delivered
				if note.Bundle == "" {
					continue
				}
				note.Count = len(activity.CreatedInstances)
			}
		}
		p := restoredPurchase(activity, note, !noted, r.at)
		if isLaunch {
			// What the first listing lacks may only be listed late, and ECS reports the creation to the minute.
			p.launch, p.delivery.lag, p.delivery.endedAt = &launch{}, LaunchListLag, r.at
		}
		r.takeStock(p, &activity, r.createdBy[activity.ID])
		r.writeOff(p)
		if r.isOver(p) && !p.broken() && p.bundle == "" { // the others of a bundle may not be restored yet
			continue
		}
		r.account.book[note.Token] = p
		klog.InfoS("Restored a purchase of a former process", "token", note.Token, "instances", note.Count,
			"pool", p.poolID, "activity", activity.ID, "status", activity.Status)
	}
}

// attached returns whether the activity, which has no note, seems to have created none of its instances, but attached those that
// RunInstances had created. While it is in progress it may not say which they are.
func (r *reconciliation) attached(activity alicloud.Activity) bool {
	if len(activity.CreatedInstances) == 0 {
		return slices.ContainsFunc(r.launches, func(launched alicloud.Activity) bool { return launched.ScalingGroupID == r.account.poolID })
	}
	return r.launched.HasAny(activity.CreatedInstances...)
}

// formerLaunches returns the purchases by RunInstances of former processes that are listed now. The first refresh may have missed
// them.
func (r *reconciliation) formerLaunches() []alicloud.Activity {
	return slices.DeleteFunc(slices.Clone(r.launches), func(launched alicloud.Activity) bool {
		return launched.ScalingGroupID != r.account.poolID || launched.Started.After(r.account.state.begun) || r.account.knownLaunches.Has(launched.ID)
	})
}

func restoredPurchase(activity alicloud.Activity, note Note, guess bool, now time.Time) *Purchase {
	p := &Purchase{
		poolID: activity.ScalingGroupID, atomic: note.Atomic, bundle: note.Bundle, requested: activity.Started,
		offering:  note.offering(),
		targeting: note.Targeting, configuration: note.Configuration, activityID: activity.ID, delivery: newDelivery(),
		request:  alicloud.ScaleRequest{ScalingGroupID: activity.ScalingGroupID, Delta: note.Count, ClientToken: note.Token},
		restored: &restored{guess: guess},
	}
	if p.requested.IsZero() {
		p.requested = now
	}
	p.accepted = p.requested
	if !activity.Ended.IsZero() && activity.Done() {
		p.delivery.endedAt = activity.Ended
	}
	return p
}

func endedLately(activity alicloud.Activity, now time.Time) bool {
	at := activity.Ended
	if at.IsZero() {
		at = activity.Started
	}
	return now.Sub(at) <= restoreFor
}

// writeOff enters what an activity that has ended did not deliver. The former process has reported it to core and to the
// operator.
func (r *reconciliation) writeOff(p *Purchase) {
	if !p.delivery.ended() {
		return
	}
	missing := p.missing() - p.delivery.stillUnlisted(p.missing(), r.at)
	if missing <= 0 {
		return
	}
	p.lost += missing
	if p.atomic {
		_, code, message := p.delivery.failure()
		p.lost = p.request.Delta
		p.failure = &cloudprovider.InstanceErrorInfo{ErrorCode: code, ErrorMessage: message}
	}
}

// Suspects returns the instances that will be given back unless pods are on their Nodes.
func (l *Ledger) Suspects() sets.Set[string] {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	suspects := sets.New[string]()
	for _, a := range l.state.accounts {
		for _, p := range a.book {
			if p.looksFirst() && p.broken() {
				suspects = suspects.Union(p.delivery.delivered)
			}
		}
	}
	return suspects
}

// Inspected enters which of the suspects have pods on their Nodes. Those are not given back.
func (l *Ledger) Inspected(suspects, occupied sets.Set[string]) {
	l.state.mu.Lock()
	defer l.state.publishAndUnlock()
	for poolID, a := range l.state.accounts {
		for _, p := range a.book {
			if !p.looksFirst() || !p.broken() {
				continue
			}
			p.inspected = suspects.Intersection(p.delivery.delivered)
			if kept := l.state.keep(p, occupied); kept.Len() > 0 {
				klog.InfoS("Keeping instances of an atomic purchase that came short, because pods run on them", "pool", poolID, "instances", sets.List(kept))
			}
		}
	}
}

// keep has those of the instances stay that the purchase, which came short, has delivered, and returns them. The stock does not get them back.
func (s *state) keep(p *Purchase, instances sets.Set[string]) sets.Set[string] {
	kept := p.delivery.delivered.Intersection(instances)
	p.kept = p.kept.Union(kept)
	p.delivery.delivered = p.delivery.delivered.Difference(kept)
	if shortage, short := s.facts.Shortages[p.offering]; short && shortage.Left > 0 {
		shortage.Left = max(0, shortage.Left-kept.Len())
		shortages := maps.Clone(s.facts.Shortages) // snapshots have it
		shortages[p.offering] = shortage
		s.facts.Shortages = shortages
	}
	return kept
}

// guessOfferings has purchases without a note count as the offering of their instances, else as the cheapest of the pool,
// which is the most likely to have been bought.
func (a *account) guessOfferings() {
	known := a.pool()
	if known == nil {
		return
	}
	for _, p := range a.book {
		if p.restored.isGuess() {
			p.targeting, p.offering = known.Targeting, a.state.likeliest(p, known)
		}
	}
}

// likeliest returns the offering of the instances of the purchase, else the cheapest of the pool.
func (s *state) likeliest(p *Purchase, known *pool.Pool) pricing.Offering {
	for id := range p.delivery.delivered {
		if instance, listed := s.facts.Instances[id]; listed && !snapshot.IsIncomplete(instance) {
			return snapshot.OfferingOf(instance)
		}
	}
	return slices.MinFunc(known.Offerings, func(one, other *pool.Offering) int {
		priceOne, knownOne := s.config.Prices.Price(one.Offering)
		priceOther, knownOther := s.config.Prices.Price(other.Offering)
		switch {
		case knownOne && knownOther:
			return cmp.Compare(priceOne, priceOther)
		case knownOne:
			return -1
		case knownOther:
			return 1
		}
		return 0
	}).Offering
}
