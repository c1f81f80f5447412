package ledger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

// confirmFor is how long after the last attempt the activities of a pool have to show nothing of an unconfirmed purchase
// before all its attempts count as not carried out.
const confirmFor = time.Minute

// matchActivities finds the activities of unconfirmed purchases: by the notes on them, and else as those without a note that
// belong to no other purchase, add as many instances, and began at the right time.
func (a *account) matchActivities(activities []alicloud.Activity) {
	activities = slices.SortedFunc(slices.Values(activities), func(a, b alicloud.Activity) int { return a.Started.Compare(b.Started) })
	now := a.state.config.Clock.Now()
	for _, p := range a.book.filter(func(p *Purchase) bool { return p.unconfirmed() && !p.sending && !p.willLaunchAgain(now) }) {
		found := slices.IndexFunc(activities, func(activity alicloud.Activity) bool {
			note, noted := NoteOf(activity)
			return noted && note.Token == p.request.ClientToken
		})
		if found < 0 {
			found = slices.IndexFunc(activities, func(activity alicloud.Activity) bool { return a.resembles(activity, p) })
		}
		if found >= 0 {
			a.confirm(p, activities[found].ID)
		}
	}
}

// resembles returns whether the activity has no note, belongs to no other purchase or removal, and may be that of the purchase.
func (a *account) resembles(activity alicloud.Activity, p *Purchase) bool {
	if _, noted := NoteOf(activity); noted || p.launch != nil || activity.Adding != p.request.Delta || a.owns(activity) {
		return false
	}
	earliest := p.requested.Truncate(time.Minute) // ESS reports the start to the minute
	late := p.accepted.IsZero() && activity.Started.After(p.attempts.last.Add(confirmFor))
	return !activity.Started.Before(earliest) && !late
}

// owns returns whether the activity is that of a known purchase or removal.
func (a *account) owns(activity alicloud.Activity) bool {
	if a.book.owns(activity) {
		return true
	}
	for _, leaving := range a.state.removals {
		if leaving.activityID == activity.ID {
			return true
		}
	}
	return false
}

// confirm enters that the purchase has this activity.
func (a *account) confirm(p *Purchase, activityID string) {
	if p.launch != nil {
		a.knownLaunches.Insert(p.request.ClientToken)
	}
	klog.InfoS("Found the activity of a purchase", "pool", a.poolID, "instances", p.request.Delta, "activity", activityID)
	if p.accepted.IsZero() {
		a.accept(p, alicloud.Scaling{ActivityID: activityID})
	} else {
		p.noteMissing = true // ESS began the activity by itself, without a note
	}
	p.activityID = activityID
	p.attempts.refusal = nil
}

// resolve decides about unconfirmed purchases that are not sent any more, because an attempt was refused, the bundle broke, or the time
// for attempts is over, once the activities of the pool have shown nothing of them for confirmFor.
func (a *account) resolve(now time.Time) {
	for _, p := range a.book {
		undecided := p.accepted.IsZero() && p.unconfirmed() && !p.sending
		if !undecided || now.Sub(p.attempts.last) < confirmFor {
			continue
		}
		switch refusal := p.attempts.refusal; {
		case refusal != nil:
			p.attempts.refusal = nil
			a.fail(p, p.missing(), alicloud.ClassOf(refusal), codeOf(refusal), refusal.Error())
		case p.isGivenUp():
			p.cancelled = p.request.Delta
		case now.Sub(p.requested) > sendFor:
			a.giveUp(p, p.trouble())
		}
	}
}

// unattributed returns the instances of an accepted purchase without an activity: new instances of its offering that no
// activity of another purchase created, at most as many as it asked for.
func (r *reconciliation) unattributed(p *Purchase) []string {
	candidates := r.account.instances().Difference(p.attempts.instancesBefore).
		Difference(r.account.book.instancesOfOthers(p, r.createdBy)).Difference(p.delivery.delivered)
	found := p.delivery.delivered.UnsortedList()
	for _, id := range sets.List(candidates) {
		instance := r.account.state.facts.Instances[id]
		fits := p.targeting != pool.TargetRequest || snapshot.IsIncomplete(instance) || snapshot.OfferingOf(instance) == p.offering
		if fits && len(found) < p.request.Delta {
			found = append(found, id)
		}
	}
	return found
}
