package ess

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// sendTimeout bounds one attempt to buy, so that a cloud that hangs holds up the other pools for moments only. What has
// no answer by then is sent again in the next loop.
const sendTimeout = 15 * time.Second

// sendQueued sends purchases again that have no answer yet.
func (p *Provider) sendQueued(ctx context.Context, managed sets.Set[string]) {
	var queued []*purchase
	p.mu.Lock()
	for _, bought := range p.purchases {
		if bought.activityID == "" && !bought.settled && !bought.sending && bought.refusal == nil &&
			bought.outstanding() > 0 && managed.Has(bought.poolID) {
			bought.sending = true
			queued = append(queued, bought)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(queued, func(a, b *purchase) int { return a.requested.Compare(b.requested) })
	var sending errgroup.Group
	sending.SetLimit(concurrentRequests)
	for _, bought := range queued {
		sending.Go(func() error { p.send(ctx, bought); return nil })
	}
	_ = sending.Wait() // send reports by itself
}

// send asks the cloud for a purchase. Where the answer is lost, or the cloud is busy, the purchase stays entered and
// the next Refresh sends the same request again, under the same token: it cannot be bought twice.
func (p *Provider) send(ctx context.Context, bought *purchase) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	scaling, err := p.Cloud.Scale(ctx, bought.request)

	p.mu.Lock()
	defer p.mu.Unlock()
	bought.sending = false
	bought.uncertain = bought.uncertain || alicloud.IsUncertain(err)
	switch class := alicloud.ClassOf(err); {
	case err == nil:
		bought.activityID = scaling.ActivityID
		purchasedInstances.WithLabelValues(bought.poolID, string(bought.offering.Purchase)).Add(float64(bought.request.Delta))
	case sendAgain(class, err):
		klog.Warningf("Purchase of %d in pool %s has no answer yet, it will be sent again under the same token: %v",
			bought.request.Delta, bought.poolID, err)
	case bought.uncertain:
		bought.refusal = err
		klog.Warningf("Purchase of %d in pool %s was refused after an attempt without an answer, looking whether that one bought: %v",
			bought.request.Delta, bought.poolID, err)
	default:
		p.failed(bought, errorClass(class), codeOf(err), err.Error())
	}
}

// sendAgain says whether the request may not have been carried out, or was and the answer is lost.
func sendAgain(class alicloud.Class, err error) bool {
	switch class {
	case alicloud.Conflict, alicloud.Throttled, alicloud.Unavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// resolve decides purchases that were refused after an attempt without an answer, by the activities of their pool.
// Needs p.mu for writing.
func (p *Provider) resolve(poolID string, activities []alicloud.Activity) {
	for _, bought := range p.purchases {
		if bought.poolID != poolID || bought.refusal == nil {
			continue
		}
		refusal := bought.refusal
		bought.refusal = nil
		for _, activity := range activities {
			if note, ours := noteOf(activity); ours && note.Token == bought.request.ClientToken {
				bought.activityID = activity.ID
			}
		}
		if bought.activityID == "" {
			p.failed(bought, errorClass(alicloud.ClassOf(refusal)), codeOf(refusal), refusal.Error())
		}
	}
}
