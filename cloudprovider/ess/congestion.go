package ess

import (
	"context"
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	// congestedFor is for how long nothing is bought, at least, of a pool whose scaling group took no purchase.
	congestedFor = time.Minute
	// yieldFor is how long a removal lets purchases of its pool go first, yieldPause how often it looks for them.
	yieldFor, yieldPause = time.Minute, time.Second
)

// giveUp stops waiting for a purchase that could not be sent, without a failure that core would back its offering off
// for: it was not the offering that could not be had. The pool is left alone for a while, so that core looks elsewhere.
// Needs p.mu for writing.
func (p *Provider) giveUp(bought *purchase, why string) {
	given := bought.outstanding()
	bought.cancelled += given
	queue := p.queueOf(bought.poolID)
	queue.congestedAt, queue.congestion = p.Clock.Now(), why
	givenUp.WithLabelValues(bought.poolID).Add(float64(given))
	p.retally()
	p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseGivenUp", "%d of %d instances of %s are not asked for any more after %v, and are looked for elsewhere: %s",
		given, bought.request.Delta, bought.offering.groupID(bought.poolID), p.Clock.Since(bought.requested).Round(time.Second), why)
	p.Wake()
}

// expire gives up what was sent for long enough, and what would do no more than to raise a desired capacity. What may have
// been carried out is left to the activities. Needs p.mu for writing.
func (p *Provider) expire(now time.Time) {
	for _, bought := range p.purchases {
		if !bought.queued() || bought.sending || bought.attempts.uncertain || p.awaits(bought) {
			continue
		}
		switch {
		case now.Sub(bought.requested) > sentFor(bought):
			p.giveUp(bought, troubleOf(bought))
		case p.queueOf(bought.poolID).capacityOnly:
			p.giveUp(bought, "the scaling group does not grow by purchases")
		}
	}
}

// sentFor is how long the purchase is sent.
func sentFor(bought *purchase) time.Duration {
	if alicloud.NeedsMending(bought.attempts.trouble) {
		return sendRefusedFor
	}
	return sendFor
}

func troubleOf(bought *purchase) string {
	if bought.attempts.trouble != nil {
		return bought.attempts.trouble.Error()
	}
	return "the scaling group was not done with what it had to do before"
}

// relieve ends the congestion of a pool once a while is over and nothing is in progress any more. Needs p.mu for writing.
func (p *Provider) relieve(poolID string, activities []alicloud.Activity, now time.Time) {
	queue := p.queueOf(poolID)
	if queue.congestedAt.IsZero() || now.Sub(queue.congestedAt) < congestedFor {
		return
	}
	for _, activity := range activities {
		if !activity.Done() {
			return
		}
	}
	queue.congestedAt, queue.congestion = time.Time{}, ""
}

// congested says why nothing is bought of the pool for now; empty where that is not so. Needs p.mu.
func (p *Provider) congested(poolID string) string {
	queue := p.queues[poolID]
	if queue == nil || queue.congestedAt.IsZero() {
		return ""
	}
	return fmt.Sprintf("the scaling group took no purchase, so nothing is bought until it is done with what it does: %s", queue.congestion)
}

// yield lets purchases of the pool that wait for their turn go before a removal, for a while.
func (p *Provider) yield(ctx context.Context, poolID string) {
	for end := p.Clock.Now().Add(yieldFor); p.purchasesWait(poolID) && p.Clock.Now().Before(end); {
		if p.pause(ctx, yieldPause) != nil {
			return
		}
	}
}

func (p *Provider) purchasesWait(poolID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inTurn(poolID) && len(p.waiting(poolID)) > 0
}
