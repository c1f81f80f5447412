package ess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	defaultDeleteWindow = 250 * time.Millisecond
	// removalTimeout is below the five minutes that core gives a deletion.
	removalTimeout = 4 * time.Minute
	// firstTurn is how long a scaling group is taken to be busy with a removal until it is known to be longer.
	firstTurn = 3 * time.Second
	// firstRetry is the wait after a removal that could not be carried out now. It grows by half each time, up to lastRetry.
	firstRetry, lastRetry = time.Second, 10 * time.Second
)

// ErrBelowMinimum is returned for a node whose removal would take its pool below its minimum.
var ErrBelowMinimum = errors.New("the pool is at its minimum")

// removal is an instance on its way out. It counts no more, from before the cloud was asked until it is gone.
type removal struct {
	poolID string
	// activityID is empty until the cloud has accepted the removal.
	activityID string
	accepted   time.Time
}

// remover gathers removals, which core orders one by one, into as few calls as there can be: one batch at a time
// is gathered per pool. Each batch is run by a goroutine that stop waits for.
type remover struct {
	provider *Provider
	mu       sync.Mutex
	gathered map[string]*removalBatch
	stopped  bool
	running  sync.WaitGroup
}

type removalBatch struct {
	poolID string
	// forced holds the instances; true where the pool's minimum does not matter.
	forced map[string]bool
	// done is closed when failures is complete.
	done     chan struct{}
	failures map[string]error
}

func newRemover(p *Provider) *remover {
	return &remover{provider: p, gathered: map[string]*removalBatch{}}
}

// stop refuses new removals and waits for those under way.
func (r *remover) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.running.Wait()
}

// remove gives back the nodes' instances and waits until the cloud has accepted it.
func (r *remover) remove(o *Offering, nodes []*apiv1.Node, force bool) error {
	instances, placeholders, errs := r.sort(o, nodes)
	if placeholders.Len() > 0 {
		r.provider.acknowledge(placeholders)
	}
	if len(instances) == 0 {
		return errors.Join(errs...)
	}
	batch, err := r.join(o.poolID, instances, force)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if neverRegistered(nodes) {
		// Core waits for these in its main loop. What fails is logged, and they are ordered anew in the next loop.
		return errors.Join(errs...)
	}
	<-batch.done
	for _, id := range instances {
		if err := batch.failures[id]; err != nil {
			errs = append(errs, fmt.Errorf("node group %s: remove instance %s: %w", o.id, id, err))
		}
	}
	return errors.Join(errs...)
}

// Releasable says whether the node's instance is of a pool of ours and lives, neither doomed nor on its way out.
func (p *Provider) Releasable(node *apiv1.Node) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	id := instanceIDOf(node)
	instance, listed := p.instances[id]
	return listed && p.handleOf(node) != nil && !p.doomed.Has(id) && !p.isLeaving(instance)
}

// Release gives back the node's instance at once, though core has not found it unneeded for long enough. Releases of one
// pool at the same time are coalesced. It returns after the cloud has accepted it, and does nothing to an instance that is
// on its way out. The error wraps ErrBelowMinimum where the pool would fall below its minimum.
func (p *Provider) Release(node *apiv1.Node) error {
	p.mu.RLock()
	handle := p.handleOf(node)
	p.mu.RUnlock()
	if handle == nil {
		return fmt.Errorf("node %s (%s) is of no pool", node.Name, node.Spec.ProviderID)
	}
	return handle.DeleteNodes([]*apiv1.Node{node})
}

// neverRegistered says whether core made the nodes up, for instances that never became one.
func neverRegistered(nodes []*apiv1.Node) bool {
	return !slices.ContainsFunc(nodes, func(node *apiv1.Node) bool {
		return node.Annotations[cloudprovider.FakeNodeReasonAnnotation] != cloudprovider.FakeNodeUnregistered
	})
}

// sort tells instances from placeholders, and both from nodes that are not of this node group.
func (r *remover) sort(o *Offering, nodes []*apiv1.Node) (instances []string, placeholders sets.Set[string], errs []error) {
	p := r.provider
	placeholders = sets.New[string]()
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, node := range nodes {
		switch _, failed := placeholderToken(node.Spec.ProviderID); {
		case failed:
			placeholders.Insert(node.Spec.ProviderID)
		case p.handleOf(node) != o:
			errs = append(errs, fmt.Errorf("node group %s: node %s (%s) does not belong to it", o.id, node.Name, node.Spec.ProviderID))
		default:
			instances = append(instances, instanceIDOf(node))
		}
	}
	return instances, placeholders, errs
}

// join adds the instances to the batch that the pool is gathering.
func (r *remover) join(poolID string, instances []string, force bool) (*removalBatch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, fmt.Errorf("pool %s: the provider is shutting down", poolID)
	}
	batch := r.gathered[poolID]
	if batch == nil {
		batch = &removalBatch{poolID: poolID, forced: map[string]bool{}, done: make(chan struct{}), failures: map[string]error{}}
		r.gathered[poolID] = batch
		r.running.Go(func() { r.run(batch) })
	}
	for _, id := range instances {
		batch.forced[id] = force || batch.forced[id]
	}
	return batch, nil
}

func (r *remover) run(batch *removalBatch) {
	defer close(batch.done)
	select {
	case <-r.provider.Clock.After(r.provider.DeleteWindow):
	case <-r.provider.ctx.Done():
	}
	r.mu.Lock()
	delete(r.gathered, batch.poolID)
	r.mu.Unlock()

	ctx, cancel := context.WithTimeout(r.provider.ctx, removalTimeout)
	defer cancel()
	r.removeAll(ctx, batch, r.provider.admitRemovals(batch))
}

// removeAll sends as few calls as there can be. A scaling group without desired capacity does one thing at a time, so
// each call but the first is for when the removal before it should be over, going by how long those took.
func (r *remover) removeAll(ctx context.Context, batch *removalBatch, ids []string) {
	turn, parallel := firstTurn, r.provider.removesInParallel(batch.poolID)
	first := true
	for chunk := range slices.Chunk(ids, alicloud.MaxRemoveBatch) {
		if !first && !parallel {
			_ = r.provider.pause(ctx, turn) // the call then says why not
		}
		waited := r.provider.removeChunk(ctx, batch, chunk)
		if !first {
			turn += waited
		}
		first = false
	}
}

func (p *Provider) removesInParallel(poolID string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	pool := p.pools[poolID]
	return pool != nil && pool.group.DesiredCapacity != nil
}

func (p *Provider) pause(ctx context.Context, d time.Duration) error {
	timer := p.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	for _, id := range sets.List(sets.KeySet(batch.forced)) {
		if instance, listed := p.instances[id]; listed && p.isLeaving(instance) {
			continue
		}
		if !p.doomed.Has(id) {
			if spare--; spare < 0 && !batch.forced[id] {
				batch.failures[id] = ErrBelowMinimum
				continue
			}
		}
		p.removals[id] = &removal{poolID: batch.poolID}
		admitted = append(admitted, id)
	}
	return admitted
}

// removeChunk sends one call, and the same again under the same token while the cloud is busy, and returns how long it
// had to wait.
func (p *Provider) removeChunk(ctx context.Context, batch *removalBatch, ids []string) (waited time.Duration) {
	request := alicloud.RemoveRequest{ScalingGroupID: batch.poolID, InstanceIDs: ids, ClientToken: uuid.NewString()}
	began := p.Clock.Now()
	activityID, err := p.Cloud.Remove(ctx, request)
	for delay := firstRetry; err != nil && sendAgain(alicloud.ClassOf(err), err); delay = min(delay*3/2, lastRetry) {
		klog.V(1).Infof("Pool %s: removal of %d instances has to wait: %v", batch.poolID, len(ids), err)
		if p.pause(ctx, wait.Jitter(delay, 0.2)) != nil {
			break // the refusal says more than that the time is over
		}
		waited = p.Clock.Since(began)
		activityID, err = p.Cloud.Remove(ctx, request)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.retally()
	for _, id := range ids {
		if err != nil {
			delete(p.removals, id)
			batch.failures[id] = err
		} else if going := p.removals[id]; going != nil {
			going.activityID, going.accepted = activityID, p.Clock.Now()
		}
	}
	if err != nil {
		klog.Errorf("Pool %s: cannot give back %v: %v", batch.poolID, ids, err)
	} else {
		removedInstances.WithLabelValues(batch.poolID).Add(float64(len(ids)))
		klog.Infof("Pool %s: gave back %v (activity %s)", batch.poolID, ids, activityID)
	}
	return waited
}

// giveBack removes, without waiting, what a broken atomic purchase brought. Whatever fails is tried again by the next
// Refresh.
func (r *remover) giveBack(poolID string, instances []string) {
	if _, err := r.join(poolID, instances, true); err != nil {
		klog.Warningf("Cannot roll back %v: %v", instances, err)
	}
}

// accountRemovals forgets what is gone, and what the cloud did not remove after all. Needs p.mu for writing.
func (p *Provider) accountRemovals(seen *observation) {
	for id, leaving := range p.removals {
		if leaving.accepted.IsZero() {
			continue // on its way to the cloud
		}
		if _, exists := p.instances[id]; !exists {
			delete(p.removals, id)
			continue
		}
		activity := seen.activities[leaving.activityID] // zero where there is none
		refused := activity.Status == alicloud.ActivityFailed || activity.Status == alicloud.ActivityRejected
		if refused || seen.at.Sub(leaving.accepted) > p.MaxProvisionTime {
			delete(p.removals, id)
			p.Events.Eventf(apiv1.EventTypeWarning, "SpotRemovalFailed", "Pool %s keeps instance %s: activity %s %s: %s %s",
				leaving.poolID, id, leaving.activityID, activity.Status, activity.ErrorCode, activity.ErrorMessage)
		}
	}
}
