package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
)

const (
	// sendFor is how long attempts to send a purchase go on. Then the purchase is given up, so that core can look in another
	// pool. It is also far below the ten minutes for which ESS surely remembers a ClientToken, after which the same request
	// might buy twice. (How long ESS remembers it is documented nowhere.)
	sendFor = 2 * time.Minute
	// sendRefusedFor is the same while the cloud refuses the request until somebody fixes credentials or permissions: that may
	// concern this pool only, and replacements must not wait for it.
	sendRefusedFor = 20 * time.Second
	// maxGangs is how many gangs one purchase is for at most.
	maxGangs = 50
	// Overdue is the age at which a waiting purchase goes before those that bring more GPUs.
	Overdue = time.Minute
)

// account is what is known about buying in one pool.
type account struct {
	state  *state
	poolID string
	book   book
	queue  queue
	target *target
	// historyRead: the activities were read, and the purchases of former processes restored from them.
	historyRead bool
	// unreadSince is since when the activities cannot be read; zero once they were.
	unreadSince time.Time
	// knownLaunches are the tokens of purchases by RunInstances, kept for as long as those of former processes are restored.
	knownLaunches sets.Set[string]
	// launchesUnread: the launched instances of the pool could not be listed.
	launchesUnread bool
}

func newAccount(s *state, poolID string) *account {
	purchases := book{}
	return &account{state: s, poolID: poolID, book: purchases, knownLaunches: sets.New[string](), target: &target{state: s, poolID: poolID, book: purchases}}
}

// pool returns the pool as of the last refresh; nil where it never was in order.
func (a *account) pool() *pool.Pool { return a.state.facts.Pools[a.poolID] }

// enter makes a purchase. It counts from now on, before anything is sent.
func (a *account) enter(groupID string, o order) (*Purchase, error) {
	known, offered := a.pool(), a.state.facts.Offering(groupID)
	if known == nil || offered == nil {
		return nil, UnknownGroup(groupID)
	}
	if known.Targeting == pool.TargetRequest && a.target.isAuto() && a.target.finding == ignored {
		return nil, fmt.Errorf("node group %s: its scaling group delivers no particular offering, and is one node group from the next loop on", groupID)
	}
	if room := a.state.last.Room(groupID, a.state.config.Prices); o.delta > room {
		return nil, fmt.Errorf("node group %s: cannot grow by %d, there is room for %d", groupID, o.delta, room)
	}
	if o.bundle == "" { // else Commit does
		a.reportRequested(known, groupID, offered.Offering, o.delta)
	}
	p := &Purchase{
		poolID: a.poolID, offering: offered.Offering, targeting: known.Targeting, atomic: o.atomic,
		bundle: o.bundle, uncommitted: o.bundle != "", alone: o.bundle != "",
		configuration: known.Group.ActiveScalingConfigurationID, owner: a.state.config.Owner, requested: a.state.config.Clock.Now(), delivery: newDelivery(),
		request: alicloud.ScaleRequest{ScalingGroupID: a.poolID, Delta: o.delta, Sync: known.Group.DesiredCapacity != nil, Serial: a.queue.parallelRefused},
	}
	p.attempts.instancesBefore = a.instances()
	if waiting := a.book.joinable(p, a.target.check); waiting != nil && !p.alone {
		a.book.join(waiting, p)
		return waiting, nil
	}
	if known.Targeting == pool.TargetRequest {
		p.request.InstanceType = offered.InstanceType
		p.request.VSwitchIDs = offered.VSwitchIDs
		p.request.SpotStrategy = offered.SpotStrategy
	}
	if known.Targeting == pool.TargetLaunch {
		p.launch = newLaunch(known, offered)
	}
	p.sign()
	a.book.add(p)
	a.target.startCheck(p)
	return p, nil
}

// instances returns the ids of the pool's instances.
func (a *account) instances() sets.Set[string] {
	ids := sets.New[string]()
	for id, instance := range a.state.facts.Instances {
		if instance.ScalingGroupID == a.poolID {
			ids.Insert(id)
		}
	}
	return ids
}

// inTurn returns whether the pool is sent one purchase at a time.
func (a *account) inTurn() bool {
	known := a.pool()
	if known != nil && known.Targeting == pool.TargetLaunch {
		return false // ECS does not do one thing at a time
	}
	return a.queue.serial(a.state.config.Clock.Now()) || known != nil && known.Group.DesiredCapacity != nil
}

// waiting returns the purchases that have to be sent, in the order in which they are: first those that are overdue, then
// those that bring the most GPUs. Instances without GPUs count as one GPU.
func (a *account) waiting() []*Purchase {
	waiting := a.book.filter(func(p *Purchase) bool {
		return p.queued() && !p.uncommitted && (p.sending || !p.isGivenUp()) && p.attempts.refusal == nil && !a.target.holdsUp(p)
	})
	now := a.state.config.Clock.Now()
	rank := func(p *Purchase) int {
		if now.Sub(p.requested) > Overdue {
			return math.MaxInt
		}
		return p.missing() * max(1, a.state.facts.Types[p.offering.InstanceType].GPUs)
	}
	slices.SortStableFunc(waiting, func(a, b *Purchase) int { return cmp.Compare(rank(b), rank(a)) })
	return waiting
}

// take marks the purchase as being sent, if it is to be sent now. It may have left the book since the caller got it from
// Purchases.Due. In a pool that is sent one purchase at a time it has to be the first in line.
func (a *account) take(p *Purchase) bool {
	if !a.book.has(p) || p.sending || p.uncommitted || p.isGivenUp() || !p.queued() || a.target.holdsUp(p) {
		return false
	}
	if a.inTurn() {
		line := a.waiting()
		if len(line) == 0 || line[0] != p || slices.ContainsFunc(line, func(other *Purchase) bool { return other.sending }) {
			return false
		}
	}
	p.sending, p.attempts.last = true, a.state.config.Clock.Now()
	return true
}

// planned enters the answer to a request for a plan, and returns whether the purchase is to be sent now.
func (a *account) planned(p *Purchase, plan alicloud.Plan, err error) (send bool) {
	switch {
	case err != nil && alicloud.Refuses(err, "ExecutionMode") && !p.attempts.uncertain && !alicloud.IsUncertain(err):
		a.target.renew(p) // the cloud makes no plans
		return true
	case err != nil:
		p.sending = false
		a.refuse(p, err)
		return false
	case !plan.Answered:
		klog.InfoS("The pool makes no plans: it bought what it was asked to plan, and the delivery will show what it delivers", "pool", a.poolID)
		p.sending = false
		a.accept(p, plan.Scaling)
		return false
	}
	return a.target.planned(p, plan)
}

// dropParallel leaves the parameter ParallelTask out of this purchase, which was refused because of it, and out of all later
// ones of the pool. It is false if the parameter was not in the request, the purchase was given up, or an attempt may have been carried out.
// Else nothing was bought so far, so the request gets a new token.
func (a *account) dropParallel(p *Purchase, refusal error) bool {
	if p.request.Serial || p.abandoned || p.attempts.uncertain || alicloud.IsUncertain(refusal) {
		return false
	}
	klog.InfoS("Sending purchases one after the other, since ParallelTask is refused", "pool", a.poolID, "err", refusal)
	a.queue.parallelRefused = true
	p.request.Serial = true
	a.target.resign(p)
	return true
}

// accept enters that the cloud accepted the purchase.
func (a *account) accept(p *Purchase, scaling alicloud.Scaling) {
	now := a.state.config.Clock.Now()
	p.accepted = now
	p.activityID = scaling.ActivityID
	a.book.claimActivity(p)
	if scaling.CapacityChange || scaling.ActivityID == "" {
		// An activity that only changes a number creates nothing. What ESS does about it later is another activity.
		p.activityID = ""
		a.queue.capacityOnly = true
		klog.InfoS("A purchase was answered without an activity that would create its instances", "pool", a.poolID, "instances", p.request.Delta)
	}
	a.queue.endCongestion()
	a.queue.allow(p.action())
	queueSeconds.WithLabelValues(a.poolID).Observe(now.Sub(p.requested).Seconds())
	a.state.countAsked(p)
}

// refuse enters that an attempt to send the purchase failed, and decides whether it is sent again.
func (a *account) refuse(p *Purchase, err error) {
	class := alicloud.ClassOf(err)
	p.attempts.uncertain = p.attempts.uncertain || alicloud.IsUncertain(err)
	p.attempts.trouble = err
	a.queue.refuse(err, a.state.config.Clock.Now())
	switch {
	case MaySucceedLater(err) || alicloud.NeedsOperator(err):
		if alicloud.CodeOf(err) == alicloud.CodeActivityInProgress {
			a.queue.serialUntil = a.state.config.Clock.Now().Add(serialFor)
		}
		klog.InfoS("A purchase will be sent again under the same token", "pool", a.poolID, "instances", p.request.Delta, "err", err)
	case p.attempts.uncertain:
		p.attempts.refusal = err
		klog.InfoS("A purchase was refused after an attempt that got no answer. The activities will show whether that attempt bought",
			"pool", a.poolID, "instances", p.request.Delta, "err", err)
	case alicloud.Refuses(err, "SyncActivity"):
		a.queue.capacityOnly = true
		a.giveUp(p, err.Error())
	case p.abandoned && alicloud.Refuses(err, "ParallelTask"), a.target.refuses(p, err): // the offering is not to blame
	case len(p.gangs) > 0 && p.cancelled == 0: // there may be enough for some of the gangs
		a.target.separate(p)
	default:
		a.target.retract(p, err)
		a.fail(p, p.missing(), class, codeOf(err), err.Error())
	}
}

// fail turns missing instances into failed ones, for which core backs the offering off, reports that, and asks for a loop.
func (a *account) fail(p *Purchase, missing int, class alicloud.Class, code, message string) {
	before := len(p.placeholders)
	p.lose(missing, cloudprovider.InstanceErrorInfo{ErrorClass: errorClass(class), ErrorCode: code, ErrorMessage: message})
	failed := len(p.placeholders) - before
	purchaseFailures.WithLabelValues(a.poolID, p.offering.InstanceType, p.offering.Zone, p.offering.PurchaseOption(), codeLabel(code)).Add(float64(failed))
	if a.state.noteShortage(p, missing, code) > 0 {
		p.placeholders = p.placeholders[:before] // a backoff would keep core from asking for as many as there are
	}
	a.state.abandonBundle(p)
	a.state.config.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseFailed", "%d of %d instances of %s were not delivered: %s: %s",
		failed, p.request.Delta, pool.OfferingID(a.poolID, p.offering), code, message)
	a.state.wake()
}

// giveUp cancels a purchase that could not be sent, without a failure for which core would back its offering off: the offering
// is not to blame. Nothing is bought of the pool for a while, so that core looks elsewhere.
func (a *account) giveUp(p *Purchase, why string) {
	given := p.missing()
	p.cancelled += given
	p.abandoned = p.bundle != ""
	a.state.abandonBundle(p)
	a.queue.congest(a.state.config.Clock.Now(), why)
	givenUp.WithLabelValues(a.poolID).Add(float64(given))
	a.state.config.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseGivenUp", "%d of %d instances of %s are not asked for any more after %v, and are looked for elsewhere: %s",
		given, p.request.Delta, pool.OfferingID(a.poolID, p.offering), a.state.config.Clock.Since(p.requested).Round(time.Second), why)
	a.state.wake()
}

// expire gives up purchases whose time to be sent is over, and those that would only raise a desired capacity. Purchases that
// may have been carried out are left to the activities.
func (a *account) expire(now time.Time) {
	for _, p := range a.book {
		if !p.queued() || p.sending || p.attempts.uncertain || a.target.holdsUp(p) {
			continue
		}
		switch {
		case now.Sub(p.requested) > p.sendFor():
			a.giveUp(p, p.trouble())
		case a.queue.capacityOnly:
			a.giveUp(p, "the scaling group does not grow by purchases")
		}
	}
}

// failMissing fails the instances of an accepted purchase that will not be delivered any more.
func (a *account) failMissing(p *Purchase, now time.Time) {
	if p.accepted.IsZero() || p.missing() == 0 {
		return
	}
	if p.delivery.ended() && !(p.launch != nil && a.launchesUnread) {
		missing := p.missing() - p.delivery.stillUnlisted(p.missing(), now)
		if missing > 0 && p.restored.isGuess() {
			p.lost += missing // nobody knows whose purchase it was, so no offering is backed off
		} else if missing > 0 {
			class, code, message := p.delivery.failure()
			a.fail(p, missing, class, code, message)
		}
		return
	}
	if timeout := a.provisionTime(); now.Sub(p.accepted) > timeout {
		a.fail(p, p.missing(), alicloud.Unknown, codeTimedOut, fmt.Sprintf("no word of it for %v", timeout))
	}
}

// provisionTime is how long a purchase may take once it is accepted.
func (a *account) provisionTime() time.Duration {
	if known := a.pool(); known != nil && known.Settings.MaxNodeProvisionTime != nil {
		return *known.Settings.MaxNodeProvisionTime
	}
	return a.state.config.MaxProvisionTime
}

// cancel stops waiting for up to n instances of the node group, the latest purchase first.
func (a *account) cancel(groupID string, n int) {
	purchases := a.book.filter(func(p *Purchase) bool {
		return p.missing() > 0 && a.state.facts.GroupID(a.poolID, p.offering) == groupID
	})
	for _, p := range slices.Backward(purchases) {
		given := min(n, p.missing())
		p.cancelled += given
		n -= given
	}
}

// nothingUnderWay returns whether, as far as is known, no instance is being added to the pool or removed from it.
func (a *account) nothingUnderWay() bool {
	if a.book.awaitsDelivery() {
		return false
	}
	for id, instance := range a.state.facts.Instances {
		if instance.ScalingGroupID != a.poolID {
			continue
		}
		leaving := a.state.removals[id]
		if leaving != nil && !leaving.accepted.IsZero() || strings.HasPrefix(instance.LifecycleState, alicloud.LifecyclePending) ||
			strings.HasPrefix(instance.LifecycleState, alicloud.LifecycleRemoving) {
			return false
		}
	}
	return true
}

// check returns why nothing can be bought of the pool; empty where it can. It enters the reasons as problems.
func (a *account) check(known *pool.Pool, found problem.Set) string {
	why := known.Unbuyable
	block := func(reason problem.Reason, cause string) {
		why = cause
		found.Add(a.poolID, reason, cause)
	}
	if why != "" {
		block(problem.Unbuyable, why)
	}
	desired := known.Group.DesiredCapacity
	if desired == nil {
		a.queue.capacityOnly = false // the operator has fixed it
	}
	if desired != nil && *desired > known.Group.TotalCapacity && !a.book.awaitsDelivery() {
		block(problem.DesiredCapacity, fmt.Sprintf("its scaling group has a desired capacity of %d and %d instances: whenever it can it buys the rest by itself, "+
			"so that what is bought until then is bought twice. Call ModifyScalingGroup with DisableDesiredCapacity=true, or lower the capacity",
			*desired, known.Group.TotalCapacity))
	}
	if a.queue.capacityOnly {
		block(problem.DesiredCapacity, "a purchase did no more than to raise the scaling group's desired capacity, so that nobody can tell what comes of it. "+
			"Call ModifyScalingGroup with DisableDesiredCapacity=true")
	}
	if a.queue.congested() {
		block(problem.Congested, a.queue.whyCongested())
	}
	a.queue.addRefusals(a.poolID, a.state.config.Clock.Now(), found)
	return why
}

// errorClass returns whether core backs off for lack of resources or for another reason.
func errorClass(class alicloud.Class) cloudprovider.InstanceErrorClass {
	switch class {
	case alicloud.Stockout, alicloud.PriceTooLow, alicloud.Quota:
		return cloudprovider.OutOfResourcesErrorClass
	}
	return cloudprovider.OtherErrorClass
}

// codeOf returns the error code of the cloud, Unknown where there is none.
func codeOf(err error) string {
	return cmp.Or(alicloud.CodeOf(err), codeUnknown)
}

// MaySucceedLater returns whether a request was not carried out for a reason that passes, or may have been carried out.
func MaySucceedLater(err error) bool {
	switch alicloud.ClassOf(err) {
	case alicloud.Conflict, alicloud.Throttled, alicloud.Unavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// UnknownGroup is the error of a request to change a node group whose pool is gone or was never in order.
func UnknownGroup(groupID string) error {
	return fmt.Errorf("node group %s: its scaling group is not under management any more", groupID)
}
