package ledger

import (
	"maps"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

// Seen is what a refresh read. The activities are older than the instances, so that the instances of an activity that has
// ended are all listed, as far as the lists of ESS are as recent as its activities.
type Seen struct {
	At     time.Time
	Groups []alicloud.ScalingGroup
	// Activities are those under way that were asked for, by id.
	Activities map[string]alicloud.Activity
	// Recent are all recent activities of some pools: see Ledger.Unanswered.
	Recent    map[string][]alicloud.Activity
	Instances map[string]alicloud.ScalingInstance
	// Launched stand for the purchases by RunInstances of which instances exist: see LaunchActivities.
	Launched []alicloud.Activity
	// LaunchesUnread are the pools of which those could not be read.
	LaunchesUnread sets.Set[string]
}

// Managed returns the ids of the scaling groups.
func (s *Seen) Managed() sets.Set[string] {
	managed := sets.New[string]()
	for _, group := range s.Groups {
		managed.Insert(group.ID)
	}
	return managed
}

// AddLaunched adds purchases by RunInstances. They count as activities of their pools. unread are the pools of which they could not be
// read: what was bought of them before is as unknown as if their activities could not be read.
func (s *Seen) AddLaunched(activities []alicloud.Activity, unread sets.Set[string]) {
	s.Launched, s.LaunchesUnread = activities, unread
	for poolID := range unread {
		delete(s.Recent, poolID)
	}
	for _, launched := range activities {
		if recent, read := s.Recent[launched.ScalingGroupID]; read {
			s.Recent[launched.ScalingGroupID] = append(recent, launched)
		}
	}
}

// GiveBack are instances of an atomic purchase that came short.
type GiveBack struct {
	PoolID    string
	Instances []string
}

// Reconcile enters what a refresh read of purchases and removals, and returns the instances to give back. The snapshot that
// it publishes has the pools of the refresh before: building them takes a while, in which core may order removals, and their
// begin has to count the instances that are there now.
func (l *Ledger) Reconcile(seen Seen) []GiveBack {
	l.state.mu.Lock()
	defer l.state.publishAndUnlock()
	if l.state.begun.IsZero() {
		l.state.begun = seen.At
	}
	l.state.keepAccounts(seen)
	l.state.setInstances(seen.Instances)
	activities := maps.Clone(seen.Activities)
	for _, recent := range seen.Recent {
		for _, activity := range recent {
			activities[activity.ID] = activity
		}
	}
	launched := sets.New[string]()
	for _, activity := range seen.Launched {
		activities[activity.ID] = activity
		launched.Insert(activity.CreatedInstances...)
	}
	createdBy := byActivity(seen.Instances)
	var all []*reconciliation
	for poolID, a := range l.state.accounts {
		a.launchesUnread = seen.LaunchesUnread.Has(poolID)
		r := &reconciliation{account: a, at: seen.At, activities: activities, createdBy: createdBy, launches: seen.Launched, launched: launched}
		recent, read := seen.Recent[poolID]
		r.learn(recent, read)
		all = append(all, r)
	}
	var giveBacks []GiveBack
	for _, r := range all { // purchases of several pools may be one bundle
		giveBacks = append(giveBacks, r.reconcile()...)
	}
	l.state.reconcileRemovals(activities, seen.At)
	l.state.forgetShortages(seen.At)
	return giveBacks
}

// keepAccounts keeps an account of each pool under management, and of no other.
func (s *state) keepAccounts(seen Seen) {
	managed := seen.Managed()
	maps.DeleteFunc(s.accounts, func(poolID string, _ *account) bool { return !managed.Has(poolID) })
	for _, group := range seen.Groups {
		s.account(group.ID).target.reset(group.ActiveScalingConfigurationID)
	}
}

// setInstances replaces the list of instances. It remembers those that are gone after they were removed: their Nodes may
// stay, even Ready, until somebody notices. Instances that are gone for another reason may live on, as those of a scaling
// group that is not under management any more.
func (s *state) setInstances(instances map[string]alicloud.ScalingInstance) {
	listed, withNode := sets.KeySet(instances), sets.KeySet(s.facts.Loop.ProviderIDs)
	for id, instance := range s.facts.Instances {
		if !listed.Has(id) && s.facts.IsLeaving(instance) {
			s.removed.Insert(id)
		}
	}
	s.removed = s.removed.Intersection(withNode).Difference(listed)
	s.facts.Instances = instances
	s.facts.Seen = s.facts.Seen.Intersection(withNode).Union(listed)
}

// byActivity returns the instances by the activity that created them.
func byActivity(instances map[string]alicloud.ScalingInstance) map[string][]string {
	created := map[string][]string{}
	for id, instance := range instances {
		if instance.ScalingActivityID != "" {
			created[instance.ScalingActivityID] = append(created[instance.ScalingActivityID], id)
		}
	}
	return created
}

// reconciliation enters what was read of the purchases of one pool, once.
type reconciliation struct {
	account    *account
	at         time.Time
	activities map[string]alicloud.Activity
	// createdBy are the listed instances by activity.
	createdBy map[string][]string
	// launches stand for purchases by RunInstances, of all pools; launched are their instances.
	launches []alicloud.Activity
	launched sets.Set[string]
}

// learn enters what the recent activities of the pool show, and the purchases of former processes. read is whether they could be read.
func (r *reconciliation) learn(recent []alicloud.Activity, read bool) {
	if read {
		if !r.account.historyRead {
			r.restore(recent)
		}
		r.account.historyRead, r.account.unreadSince = true, time.Time{}
		r.account.resolve(r.at)
		if r.account.state.mayLaunch(r.account.poolID) {
			r.account.queue.relieve(nil, r.at) // what its scaling group does holds up no call of RunInstances
		} else {
			r.account.queue.relieve(recent, r.at)
		}
		for _, activity := range recent {
			if note, noted := NoteOf(activity); noted {
				r.account.target.compare(note, activity.CreatedInstances)
			}
		}
	}
	if !r.account.historyRead && r.account.unreadSince.IsZero() {
		r.account.unreadSince = r.at
	}
	switch {
	case r.at.Sub(r.account.state.begun) >= shortfallTime:
		clear(r.account.knownLaunches) // nothing is restored any more
	case r.account.historyRead:
		r.restore(r.formerLaunches())
	}
}

// reconcile updates the purchases, and returns what of them has to be given back.
func (r *reconciliation) reconcile() []GiveBack {
	r.account.expire(r.at)
	r.account.target.noteBought()
	giveBacks := r.updatePurchases()
	r.account.target.expireCheck(r.at)
	return giveBacks
}

func (r *reconciliation) updatePurchases() (giveBacks []GiveBack) {
	for _, p := range r.account.book.filter(func(*Purchase) bool { return true }) {
		if p.launch != nil && r.account.launchesUnread {
			r.account.failMissing(p, r.at) // which can only time it out
			p.inspected = nil
			continue
		}
		if !p.accepted.IsZero() {
			r.update(p)
		}
		if p.abandoned {
			p.abandon() // it may have been sent when that was entered, and its answer is known now
		}
		r.account.state.abandonBundle(p)
		left, instances := r.giveBack(p)
		if len(instances) > 0 {
			giveBacks = append(giveBacks, GiveBack{r.account.poolID, instances})
		}
		if !left && r.isOver(p) {
			delete(r.account.book, p.request.ClientToken)
		}
	}
	return giveBacks
}

// update finds out what came of an accepted purchase.
func (r *reconciliation) update(p *Purchase) {
	listed := r.createdBy[p.activityID]
	var answer *alicloud.Activity
	if p.activityID == "" {
		listed = r.unattributed(p)
	} else if activity, read := r.activities[p.activityID]; read {
		answer = &activity
	}
	r.takeStock(p, answer, listed)
	if !p.restored.isGuess() {
		r.account.target.compare(p.note(), p.delivery.delivered.UnsortedList())
	}
	r.account.failMissing(p, r.at)
}

// takeStock updates the delivery of the purchase from its activity, nil where it was not read, and from its instances in the
// list.
func (r *reconciliation) takeStock(p *Purchase, activity *alicloud.Activity, listed []string) {
	d := &p.delivery
	if activity != nil && !p.answered() {
		d.setActivity(*activity, r.at)
		r.account.target.reportNote(p, *activity)
	}
	for _, id := range slices.Concat(listed, d.activity.CreatedInstances, d.activity.FailedInstances) {
		if !p.kept.Has(id) {
			d.see(id, r.account.state.listed(id), r.hasServed(id), r.at)
		}
	}
	if p.activityID != "" {
		d.checkMissing(r.account.state.listed, r.at)
	}
}

// hasServed returns whether the instance is in service, or leaves for another reason than the failure of its activity.
func (r *reconciliation) hasServed(id string) bool {
	if r.account.state.removals[id] != nil || r.account.state.facts.Loop.Reclaiming.Has(id) {
		return true
	}
	instance := r.account.state.facts.Instances[id]
	state := instance.LifecycleState
	if instance.Unattached && state == alicloud.LifecycleStopped {
		return false // it may be about to vanish
	}
	return state != "" && !strings.HasPrefix(state, alicloud.LifecyclePending) && !strings.HasPrefix(state, alicloud.LifecycleRemoving)
}

// giveBack returns the instances of an atomic purchase that came short and that have to be removed now, and whether any
// are left.
func (r *reconciliation) giveBack(p *Purchase) (left bool, instances []string) {
	if !p.broken() {
		return false, nil
	}
	for id := range r.account.state.returnable(p) {
		left = true
		isKnown := !p.looksFirst() || p.inspected.Has(id)
		if isKnown && !r.account.state.facts.IsLeaving(r.account.state.facts.Instances[id]) {
			instances = append(instances, id)
		}
	}
	p.inspected = nil // by the next refresh pods may have come
	if len(instances) > 0 {
		slices.Sort(instances)
		r.account.state.config.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseRolledBack",
			"Giving back %d of %d instances of %s: all or nothing was asked for", len(instances), p.request.Delta,
			pool.OfferingID(p.poolID, p.offering))
	}
	return left, instances
}

// returnable returns the instances of the purchase that may be given back: those that exist, in its pool, and that nobody has
// told ESS to keep.
func (s *state) returnable(p *Purchase) sets.Set[string] {
	found := sets.New[string]()
	for id := range p.delivery.delivered {
		if instance, exists := s.facts.Instances[id]; exists && instance.ScalingGroupID == p.poolID && !snapshot.IsKept(instance) {
			found.Insert(id)
		}
	}
	return found
}

// noCapacity returns the instances of the purchase on which nothing may be placed: those that are given back because an atomic
// purchase came short, and those that the cloud rolls back.
func (s *state) noCapacity(p *Purchase) sets.Set[string] {
	if p.broken() {
		return p.delivery.rolledBack.Union(s.returnable(p))
	}
	return p.delivery.rolledBack.Clone()
}

// isOver returns whether nothing about the purchase is left to be found out or done.
func (r *reconciliation) isOver(p *Purchase) bool {
	switch {
	case p.sending, p.missing() > 0, len(p.placeholders) > 0, r.account.state.awaitsBundle(p):
		return false
	case p.launch != nil && p.broken() && len(p.delivery.unlisted) > 0:
		return false // they have to be given back once they are listed
	case p.accepted.IsZero(): // cancelled or refused before the cloud accepted it
		return true
	case p.activityID == "":
		return true
	}
	// A purchase that timed out is kept until its activity ends: instances of an atomic purchase that are delivered late have to be
	// given back, too.
	return p.delivery.ended() && !p.delivery.mayRollBack(r.account.state.listed, r.at) && !r.explainsInstance(p)
}

// explainsInstance returns whether the purchase is needed to tell the offering of an instance that is listed incompletely.
func (r *reconciliation) explainsInstance(p *Purchase) bool {
	for id := range p.delivery.delivered {
		if instance, listed := r.account.state.facts.Instances[id]; listed && snapshot.IsIncomplete(instance) {
			return true
		}
	}
	return false
}
