package ess

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// doubtFor is how long after the last attempt the activities of a pool have to show nothing of a purchase before it is
// believed that none of its attempts was carried out.
const doubtFor = time.Minute

// inDoubt says whether the activities of the pool have to tell what became of the purchase: an attempt had no answer, or
// the answer named no activity.
func (b *purchase) inDoubt() bool {
	return b.outstanding() > 0 && b.activityID == "" && (b.attempts.uncertain || !b.accepted.IsZero())
}

// adopt finds the activities of purchases in doubt: by the notes on them, and else as those without a note that are
// nobody's, add as many instances and began at the time. Needs p.mu for writing.
func (p *Provider) adopt(poolID string, activities []alicloud.Activity) {
	var doubtful []*purchase
	for _, bought := range p.purchases {
		if bought.poolID == poolID && bought.inDoubt() && !bought.sending {
			doubtful = append(doubtful, bought)
		}
	}
	slices.SortFunc(doubtful, func(a, b *purchase) int { return a.requested.Compare(b.requested) })
	activities = slices.SortedFunc(slices.Values(activities), func(a, b alicloud.Activity) int { return a.Started.Compare(b.Started) })
	for _, bought := range doubtful {
		byNote := slices.IndexFunc(activities, func(a alicloud.Activity) bool {
			note, ours := noteOf(a)
			return ours && note.Token == bought.request.ClientToken
		})
		if byNote < 0 {
			byNote = slices.IndexFunc(activities, func(a alicloud.Activity) bool { return p.looksLike(a, bought) })
		}
		if byNote >= 0 {
			p.carriedOut(bought, activities[byNote].ID)
		}
	}
}

// looksLike says whether the activity, which has no note and is nobody's, may be that of the purchase. Needs p.mu.
func (p *Provider) looksLike(activity alicloud.Activity, bought *purchase) bool {
	if _, noted := noteOf(activity); noted || activity.Adding != bought.request.Delta || p.claims(activity) {
		return false
	}
	earliest := bought.requested.Truncate(time.Minute) // as ESS tells it
	late := bought.accepted.IsZero() && activity.Started.After(bought.attempts.last.Add(doubtFor))
	return !activity.Started.Before(earliest) && !late
}

// carriedOut enters that the purchase has an activity. Needs p.mu for writing.
func (p *Provider) carriedOut(bought *purchase, activityID string) {
	klog.Infof("Purchase of %d in pool %s is found to be activity %s", bought.request.Delta, bought.poolID, activityID)
	if bought.accepted.IsZero() {
		p.accept(bought, alicloud.Scaling{ActivityID: activityID})
	} else {
		bought.noteMissed = true // ESS began it by itself, and attached none
	}
	bought.activityID = activityID
	bought.attempts.refusal = nil
}

// disown takes the activity of the purchase, of which the cloud says that it is this one's, from another to which it was
// given for its looks. Needs p.mu for writing.
func (p *Provider) disown(bought *purchase) {
	for _, other := range p.purchases {
		if other != bought && other.activityID == bought.activityID && other.activityID != "" && other.attempts.uncertain {
			other.activityID, other.accepted, other.delivery = "", time.Time{}, newDelivery()
		}
	}
}

// resolve decides, once the activities of the pool show nothing of them, purchases that may have been carried out and are
// not sent any more: because a later attempt was refused, or because the time for attempts is over. Needs p.mu for writing.
func (p *Provider) resolve(poolID string, now time.Time) {
	for _, bought := range p.purchases {
		undecided := bought.poolID == poolID && bought.accepted.IsZero() && bought.inDoubt() && !bought.sending
		if !undecided || now.Sub(bought.attempts.last) < doubtFor {
			continue
		}
		switch refusal := bought.attempts.refusal; {
		case refusal != nil:
			bought.attempts.refusal = nil
			p.fail(bought, bought.outstanding(), alicloud.ClassOf(refusal), codeOf(refusal), refusal.Error())
		case now.Sub(bought.requested) > sendFor:
			p.giveUp(bought, troubleOf(bought))
		}
	}
}

// instancesOf are the instances of the pool. Needs p.mu.
func (p *Provider) instancesOf(poolID string) sets.Set[string] {
	ids := sets.New[string]()
	for id, instance := range p.instances {
		if instance.ScalingGroupID == poolID {
			ids.Insert(id)
		}
	}
	return ids
}

// strays are instances that must have come of a purchase without an activity: new ones of its offering that no activity of
// another purchase brought, as many as it asked for. Needs p.mu.
func (p *Provider) strays(bought *purchase, arrivedBy map[string][]string) []string {
	owned := sets.New[string]()
	for _, other := range p.purchases {
		if other != bought {
			owned = owned.Union(other.delivery.arrived).Insert(arrivedBy[other.activityID]...)
		}
	}
	strays := bought.delivery.arrived.UnsortedList()
	for _, id := range sets.List(p.instancesOf(bought.poolID).Difference(bought.attempts.bystanders).Difference(owned).Difference(bought.delivery.arrived)) {
		instance := p.instances[id]
		fits := bought.targeting != targetRequest || isBare(instance) || offeringOf(instance) == bought.offering
		if fits && len(strays) < bought.request.Delta {
			strays = append(strays, id)
		}
	}
	return strays
}
