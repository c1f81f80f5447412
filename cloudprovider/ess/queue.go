package ess

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"golang.org/x/sync/errgroup"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	// sendTimeout bounds one attempt to buy, so that a cloud that hangs holds up the other pools for moments only. What has
	// no answer by then is sent again in the next loop.
	sendTimeout = 15 * time.Second
	// sendFor is how long a purchase is sent. What the cloud has not accepted by then is given up, so that core may look in
	// another pool. It is also far below the ten minutes for which a ClientToken is sure to be remembered, after which the
	// same request might buy twice. (How long that is is documented nowhere.)
	sendFor = 2 * time.Minute
	// sendRefusedFor is the same where the cloud refuses it until somebody mends credentials or permissions: that may be so
	// in this pool only, and replacements are not to wait for it.
	sendRefusedFor = 20 * time.Second
	// overdue is after how long in the queue a purchase goes before all that are worth more.
	overdue = time.Minute
	// serialFor is for how long a scaling group that was busy in spite of ParallelTask is taken to do one thing at a time.
	serialFor = 10 * time.Minute
)

// queue is how the purchases of one pool get to the cloud.
//
// A scaling group does one thing at a time ("the scaling group has no scaling activities in progress": page of
// ScaleWithAdjustment, September 2026), unless it honours ParallelTask, which no document of this API version knows. So
// purchases are sent side by side until one is refused, and from then on in turn, what is worth most first.
//
// In a group with a desired capacity they are sent in turn always, each when the instances of the one before are in
// service: the new desired capacity is the number of instances that are stable plus what was asked for, so that a purchase
// sent earlier would be taken back by the next ("Expected number of instances" in the Auto Scaling documentation).
type queue struct {
	// serialUntil: the group was found busy, so that it is sent one purchase at a time until then.
	serialUntil time.Time
	// parallelRefused: ParallelTask is a parameter that the cloud does not take.
	parallelRefused bool
	// congestedAt is when a purchase was given up for the last time, because of congestion; zero once the group took another.
	congestedAt time.Time
	congestion  string
	// refusals are by action, and stand until the action is allowed: see refusal.
	refusals map[string]refusal
	// capacityOnly: in spite of SyncActivity a purchase did no more than to raise the group's desired capacity.
	capacityOnly bool
}

// attempts are the tries to get a purchase to the cloud.
type attempts struct {
	last time.Time
	// uncertain: one had no answer, so it may have been carried out.
	uncertain bool
	// refusal is the answer to a later one, which does not undo that: the pool's activities decide.
	refusal error
	// trouble is why the last was in vain.
	trouble error
	// bystanders are the instances that the pool had before the first.
	bystanders sets.Set[string]
}

// queueOf is the queue of the pool. Needs p.mu for writing.
func (p *Provider) queueOf(poolID string) *queue {
	if p.queues[poolID] == nil {
		p.queues[poolID] = &queue{}
	}
	return p.queues[poolID]
}

// inTurn says whether the pool is sent one purchase at a time. Needs p.mu for writing.
func (p *Provider) inTurn(poolID string) bool {
	queue, pool := p.queueOf(poolID), p.pools[poolID]
	return queue.parallelRefused || p.Clock.Now().Before(queue.serialUntil) || pool != nil && pool.group.DesiredCapacity != nil
}

// waiting are the purchases of the pool that have to be sent, in the order in which they are: those that waited long, and
// then those that bring the most GPUs. Needs p.mu.
func (p *Provider) waiting(poolID string) []*purchase {
	var waiting []*purchase
	for _, bought := range p.purchases {
		if bought.poolID == poolID && bought.queued() && bought.attempts.refusal == nil && !p.awaits(bought) {
			waiting = append(waiting, bought)
		}
	}
	now := p.Clock.Now()
	worth := func(bought *purchase) int {
		if now.Sub(bought.requested) > overdue {
			return math.MaxInt
		}
		return p.worth(bought)
	}
	slices.SortFunc(waiting, func(a, b *purchase) int {
		return cmp.Or(cmp.Compare(worth(b), worth(a)), a.requested.Compare(b.requested), strings.Compare(a.request.ClientToken, b.request.ClientToken))
	})
	return waiting
}

// worth is how many GPUs the purchase brings; instances without any count as one. Needs p.mu.
func (p *Provider) worth(bought *purchase) int {
	return bought.outstanding() * max(1, p.shapes[bought.offering.InstanceType].GPUs)
}

// take says whether the purchase is to be sent now, and marks it as being sent. In a pool that takes one at a time it has
// to be the first in line.
func (p *Provider) take(bought *purchase) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bought.sending || !bought.queued() || p.awaits(bought) {
		return false
	}
	if p.inTurn(bought.poolID) {
		line := p.waiting(bought.poolID)
		if len(line) == 0 || line[0] != bought || slices.ContainsFunc(line, func(other *purchase) bool { return other.sending }) {
			return false
		}
	}
	bought.sending, bought.attempts.last = true, p.Clock.Now()
	return true
}

// release takes back that the purchase is being sent.
func (p *Provider) release(bought *purchase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bought.sending = false
}

// sendQueued sends what the cloud has not accepted yet. Where an attempt had no answer that is only done once the
// activities of its pool were read and show nothing of it.
func (p *Provider) sendQueued(ctx context.Context, seen *observation) {
	var sending errgroup.Group
	sending.SetLimit(concurrentRequests)
	for poolID, line := range p.due(seen) {
		p.mu.Lock()
		inTurn := p.inTurn(poolID)
		p.mu.Unlock()
		if inTurn {
			sending.Go(func() error { p.sendInTurn(ctx, line); return nil })
			continue
		}
		for _, bought := range line {
			sending.Go(func() error { p.send(ctx, bought); return nil })
		}
	}
	_ = sending.Wait() // send reports by itself
}

// due are the purchases to send, by pool. What was sent for long enough is not.
func (p *Provider) due(seen *observation) map[string][]*purchase {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := map[string][]*purchase{}
	for poolID := range seen.managed {
		_, read := seen.recalled[poolID]
		for _, bought := range p.waiting(poolID) {
			if seen.at.Sub(bought.requested) <= sendFor && (read || !bought.attempts.uncertain) {
				due[poolID] = append(due[poolID], bought)
			}
		}
	}
	return due
}

// sendInTurn sends the first that the cloud does not refuse for good.
func (p *Provider) sendInTurn(ctx context.Context, line []*purchase) {
	for _, bought := range line {
		p.send(ctx, bought)
		p.mu.Lock()
		settled := !bought.queued() && bought.accepted.IsZero()
		p.mu.Unlock()
		if !settled {
			return
		}
	}
}

// send asks the cloud for a purchase whose turn it is. Where the answer is lost, or the cloud is busy, the purchase stays
// entered and a later Refresh sends the same request again, under the same token: it cannot be bought twice.
func (p *Provider) send(ctx context.Context, bought *purchase) {
	if !p.take(bought) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if bought.request.Sync && !p.isStable(ctx, bought.poolID) {
		p.release(bought)
		return
	}
	if !p.askForPlan(ctx, bought) {
		return
	}
	scaling, err := p.Cloud.Scale(ctx, bought.request)
	if p.renounceParallel(bought, err) {
		scaling, err = p.Cloud.Scale(ctx, bought.request)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	bought.sending = false
	if err == nil {
		p.accept(bought, scaling)
	} else {
		p.notAccepted(bought, err)
	}
}

// notAccepted decides whether the purchase is sent again. Needs p.mu for writing.
func (p *Provider) notAccepted(bought *purchase, err error) {
	queue, class := p.queueOf(bought.poolID), alicloud.ClassOf(err)
	bought.attempts.uncertain = bought.attempts.uncertain || alicloud.IsUncertain(err)
	bought.attempts.trouble = err
	queue.refuse(err, p.Clock.Now())
	switch {
	case sendAgain(class, err) || alicloud.NeedsMending(err):
		if alicloud.CodeOf(err) == alicloud.CodeActivityInProgress {
			queue.serialUntil = p.Clock.Now().Add(serialFor)
		}
		klog.Warningf("Purchase of %d in pool %s has no answer yet, it will be sent again under the same token: %v",
			bought.request.Delta, bought.poolID, err)
	case bought.attempts.uncertain:
		bought.attempts.refusal = err
		klog.Warningf("Purchase of %d in pool %s was refused after an attempt without an answer, looking whether that one bought: %v",
			bought.request.Delta, bought.poolID, err)
	case alicloud.Refuses(err, "SyncActivity"):
		queue.capacityOnly = true
		p.giveUp(bought, err.Error())
	case p.refusesTargeting(bought, err):
	default:
		p.acquit(bought, err)
		p.fail(bought, bought.outstanding(), class, codeOf(err), err.Error())
	}
}

// accept enters the answer of the cloud. Needs p.mu for writing.
func (p *Provider) accept(bought *purchase, scaling alicloud.Scaling) {
	now, queue := p.Clock.Now(), p.queueOf(bought.poolID)
	bought.accepted = now
	bought.activityID = scaling.ActivityID
	p.disown(bought)
	if scaling.CapacityChange || scaling.ActivityID == "" {
		// An activity that changes a number only brings nothing. What ESS does about it later is another one.
		bought.activityID = ""
		queue.capacityOnly = true
		klog.Warningf("Purchase of %d in pool %s was answered without an activity that would bring it", bought.request.Delta, bought.poolID)
	}
	queue.congestedAt, queue.congestion = time.Time{}, ""
	queue.allow("ScaleWithAdjustment")
	queueSeconds.WithLabelValues(bought.poolID).Observe(now.Sub(bought.requested).Seconds())
	purchasedInstances.WithLabelValues(bought.poolID, string(bought.offering.Purchase)).Add(float64(bought.request.Delta))
}

// renounceParallel says whether the cloud refused the purchase on account of ParallelTask, which is then left out, of this
// purchase and of all of the pool. As nothing can have come of the request so far, it gets a token of its own.
func (p *Provider) renounceParallel(bought *purchase, refusal error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !alicloud.Refuses(refusal, "ParallelTask") || bought.request.Serial || bought.attempts.uncertain || alicloud.IsUncertain(refusal) {
		return false
	}
	klog.Warningf("Pool %s: sending purchases one after the other, since ParallelTask is refused: %v", bought.poolID, refusal)
	p.queueOf(bought.poolID).parallelRefused = true
	former := bought.request.ClientToken
	bought.request.Serial = true
	if err := bought.sign(); err != nil {
		klog.Errorf("Pool %s: describe the purchase: %v", bought.poolID, err)
		return false
	}
	delete(p.purchases, former)
	p.purchases[bought.request.ClientToken] = bought
	return true
}

// isStable says whether a scaling group with a desired capacity may be sent a purchase: nothing of it is under way.
func (p *Provider) isStable(ctx context.Context, poolID string) bool {
	p.mu.RLock()
	stable := p.isQuiet(poolID)
	p.mu.RUnlock()
	if !stable {
		return false
	}
	underWay, err := p.Cloud.ActivitiesInProgress(ctx, poolID)
	if err != nil {
		klog.Warningf("Pool %s: cannot tell whether its desired capacity is reached, so nothing is bought yet: %v", poolID, err)
	}
	return err == nil && len(underWay) == 0
}

// isQuiet says whether nothing comes to the pool or goes, as far as is known. Needs p.mu.
func (p *Provider) isQuiet(poolID string) bool {
	if p.awaitsAny(poolID) {
		return false
	}
	for id, instance := range p.instances {
		if instance.ScalingGroupID != poolID {
			continue
		}
		removal := p.removals[id]
		if removal != nil && !removal.accepted.IsZero() || strings.HasPrefix(instance.LifecycleState, alicloud.LifecyclePending) ||
			strings.HasPrefix(instance.LifecycleState, alicloud.LifecycleRemoving) {
			return false
		}
	}
	return true
}

// sendAgain says whether the request may not have been carried out, or was and the answer is lost.
func sendAgain(class alicloud.Class, err error) bool {
	switch class {
	case alicloud.Conflict, alicloud.Throttled, alicloud.Unavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
