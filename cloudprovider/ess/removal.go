package ess

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

var (
	// ErrBelowMinimum is returned for a node whose removal would take its pool below its minimum.
	ErrBelowMinimum = errors.New("the pool is at its minimum")
	// ErrKept is returned for a node whose instance somebody has told ESS to keep: protected from scale-in, on standby or
	// stopped.
	ErrKept = errors.New("its lifecycle state keeps it")
	// ErrDisputed is returned for a node whose instance another Node says to be as well.
	ErrDisputed = errors.New("several Nodes say that they are its instance")
	// errNotInPool is returned for what is in no pool of ours, or in another: it is nobody's to remove.
	errNotInPool = errors.New("it is not in the pool")
)

const (
	// listingLag is how long after the end of a removal its instances may still be listed. How far DescribeScalingInstances
	// lags behind the end of an activity is not documented.
	listingLag = time.Minute
	// removalPatience is how long a removal may take from its acceptance: a minute to stop, the lifecycle hooks of the
	// group, the activities before it in the group. What is still listed then counts again.
	removalPatience = 15 * time.Minute
)

// removal is an instance on its way out. It counts no more, from before the cloud was asked until it is gone.
type removal struct {
	poolID string
	why    reason
	// activityID is empty until the cloud has accepted the removal.
	activityID string
	accepted   time.Time
	// begun: the activity was seen in progress. ended is when it was seen to be over, end how.
	begun bool
	ended time.Time
	end   alicloud.Activity
}

// Releasable says whether the node's instance is of a pool of ours and serves, neither doomed nor on its way out, and may
// be given back: nobody has told ESS to keep it, and no other Node says that it is the same instance.
func (p *Provider) Releasable(node *apiv1.Node) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	id := p.instanceIDOf(node)
	instance, listed := p.instances[id]
	return listed && p.handleOf(node) != nil && p.standingOf(instance) == serving && !isKept(instance) && !p.disputed.Has(id)
}

// Release gives back the node's instance at once, though core has not found it unneeded for long enough. Releases of one
// pool at the same time are coalesced. It returns after the cloud has accepted it, and does nothing to an instance that is
// on its way out. The error wraps ErrBelowMinimum where the pool would fall below its minimum, and
// ErrKept or ErrDisputed where the instance has to stay.
func (p *Provider) Release(node *apiv1.Node) error {
	p.mu.RLock()
	handle := p.handleOf(node)
	p.mu.RUnlock()
	if handle == nil {
		return fmt.Errorf("node %s (%s) is of no pool", node.Name, node.Spec.ProviderID)
	}
	return handle.DeleteNodes([]*apiv1.Node{node})
}

// admitRemovals marks what may go as going, and says of the rest why not. What is on its way out already is let be.
func (p *Provider) admitRemovals(batch *removalBatch) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.retally()
	spare := 0
	if pool := p.pools[batch.poolID]; pool != nil {
		spare = p.poolTally(batch.poolID).live - pool.minSize
	}
	var admitted []string
	for _, id := range sets.List(sets.KeySet(batch.wanted)) {
		instance, listed := p.instances[id]
		switch why := batch.wanted[id]; {
		case !listed || instance.ScalingGroupID != batch.poolID:
			batch.failures[id] = errNotInPool
			continue
		case p.isLeaving(instance):
			continue
		case isKept(instance) && why != forced:
			batch.failures[id] = fmt.Errorf("%w: it is %s", ErrKept, instance.LifecycleState)
			continue
		case p.standingOf(instance) == serving:
			if spare--; spare < 0 && why == unneeded {
				batch.failures[id] = ErrBelowMinimum
				continue
			}
		}
		p.removals[id] = &removal{poolID: batch.poolID, why: batch.wanted[id]}
		admitted = append(admitted, id)
	}
	return admitted
}

// accepted notes that the cloud removes the instances.
func (p *Provider) accepted(poolID, activityID string, ids []string) {
	p.mu.Lock()
	for _, id := range ids {
		if going := p.removals[id]; going != nil {
			going.activityID, going.accepted = activityID, p.Clock.Now()
		}
	}
	p.queueOf(poolID).allow("RemoveInstances")
	p.mu.Unlock()
	removedInstances.WithLabelValues(poolID).Add(float64(len(ids)))
	klog.Infof("Pool %s: gave back %v (activity %s)", poolID, ids, activityID)
	p.Removed(ids)
}

// refused notes that the cloud does not remove the instances.
func (p *Provider) refused(batch *removalBatch, ids []string, err error) {
	klog.Errorf("Pool %s: cannot give back %v: %v", batch.poolID, ids, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.retally()
	p.queueOf(batch.poolID).refuse(err, p.Clock.Now())
	for _, id := range ids {
		delete(p.removals, id)
		batch.failures[id] = err
	}
}

// accountRemovals forgets what is gone, and what the cloud did not remove after all. Needs p.mu for writing.
func (p *Provider) accountRemovals(seen *observation) {
	maps.DeleteFunc(p.unremoved, func(id string, _ unremoved) bool { _, exists := p.instances[id]; return !exists })
	for id, going := range p.removals {
		if going.accepted.IsZero() {
			continue // on its way to the cloud
		}
		instance, exists := p.instances[id]
		if !exists {
			delete(p.removals, id)
			continue
		}
		switch activity, read := seen.activities[going.activityID]; {
		case read && activity.Done():
			going.ended, going.end = seen.at, activity
		case read:
			going.begun = true
		}
		rolledBack := going.end.Status == alicloud.ActivityFailed || going.end.Status == alicloud.ActivityRejected
		stays := !going.ended.IsZero() && seen.at.Sub(going.ended) >= listingLag
		if rolledBack || stays || seen.at.Sub(going.accepted) > removalPatience {
			delete(p.removals, id)
			p.notRemoved(going, instance)
			p.unremoved[id] = p.unremoved[id].next(going)
		}
	}
}

// notRemoved tells of an instance that is still there. It counts again, unless ESS goes on removing it.
func (p *Provider) notRemoved(going *removal, instance alicloud.ScalingInstance) {
	failedRemovals.WithLabelValues(going.poolID).Inc()
	why := fmt.Sprintf("activity %s has not ended within %v", going.activityID, removalPatience)
	if !going.ended.IsZero() {
		why = fmt.Sprintf("activity %s has ended as %s %s %s %s", going.activityID, going.end.Status, going.end.StatusDetail, going.end.ErrorCode, going.end.ErrorMessage)
	}
	p.Events.Eventf(apiv1.EventTypeWarning, "SpotRemovalFailed", "Pool %s still has instance %s (%s), which was to be removed: %s",
		going.poolID, instance.ID, instance.LifecycleState, strings.TrimSpace(why))
}

// returnable are the instances of a purchase that may be given back: those that exist, in its pool, and that nobody has
// told ESS to keep. Needs p.mu.
func (p *Provider) returnable(bought *purchase) sets.Set[string] {
	found := sets.New[string]()
	for id := range bought.delivery.arrived {
		if instance, exists := p.instances[id]; exists && instance.ScalingGroupID == bought.poolID && !isKept(instance) {
			found.Insert(id)
		}
	}
	return found
}
