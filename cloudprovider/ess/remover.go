package ess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	// removalTurn is how long a removal is seen in progress at most: instances are given stopTimeout, and then released.
	removalTurn = 2 * stopTimeout
	// stopTimeout is how long an instance is given to stop: its pods have gone by then, and what runs still is lost either way.
	stopTimeout = time.Minute
)

// remover gathers removals, which core orders one by one, into as few calls as there can be: one batch at a time
// is gathered per pool. Each batch is run by a goroutine that stop waits for.
type remover struct {
	provider *Provider
	mu       sync.Mutex
	gathered map[string]*removalBatch
	stopped  bool
	running  sync.WaitGroup
}

// reason is why an instance goes, and decides what may keep it. Of several the last counts.
type reason int

const (
	// unneeded: it leaves the pool its minimum, and spares what ESS was told to keep.
	unneeded reason = iota
	// undone: it came of a purchase that is undone; the minimum does not matter.
	undone
	// forced: neither matters.
	forced
)

type removalBatch struct {
	poolID string
	// wanted holds the instances.
	wanted map[string]reason
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
func (r *remover) remove(o *Offering, nodes []*apiv1.Node, why reason) error {
	instances, placeholders, errs := r.sort(o, nodes)
	if placeholders.Len() > 0 {
		r.provider.acknowledge(placeholders)
	}
	if len(instances) == 0 {
		return errors.Join(errs...)
	}
	batch, err := r.join(o.poolID, instances, why)
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
		case p.disputed.Has(p.instanceIDOf(node)):
			errs = append(errs, fmt.Errorf("node group %s: remove node %s (%s): %w", o.id, node.Name, node.Spec.ProviderID, ErrDisputed))
		default:
			instances = append(instances, p.instanceIDOf(node))
		}
	}
	return instances, placeholders, errs
}

// join adds the instances to the batch that the pool is gathering.
func (r *remover) join(poolID string, instances []string, why reason) (*removalBatch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, fmt.Errorf("pool %s: the provider is shutting down", poolID)
	}
	batch := r.gathered[poolID]
	if batch == nil {
		batch = &removalBatch{poolID: poolID, wanted: map[string]reason{}, done: make(chan struct{}), failures: map[string]error{}}
		r.gathered[poolID] = batch
		r.running.Go(func() { r.run(batch) })
	}
	for _, id := range instances {
		batch.wanted[id] = max(why, batch.wanted[id])
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
// each call but the first is for when the removal before it should be over, going by how long those took. A call that is
// refused is divided, so that one instance that cannot go does not keep the others; one that cannot go yet is tried again
// when the others are on their way.
func (r *remover) removeAll(ctx context.Context, batch *removalBatch, ids []string) {
	parallel := r.provider.removesInParallel(batch.poolID)
	queue := slices.Collect(slices.Chunk(ids, alicloud.MaxRemoveBatch))
	var notYet [][]string
	var turn, busy time.Duration
	for delay := firstRetry; len(queue) > 0; {
		chunk := queue[0]
		queue = queue[1:]
		if !parallel {
			_ = r.provider.pause(ctx, busy) // the call then says why not
		}
		waited, err := r.provider.removeChunk(ctx, batch.poolID, chunk)
		busy = 0
		switch {
		case err == nil:
			if turn == 0 {
				turn = firstTurn
			} else {
				turn += waited
			}
			busy = turn
		case len(chunk) > 1 && mayBeOfOne(err):
			queue = append(divided(chunk, err), queue...)
		case isNotYet(err) && ctx.Err() == nil:
			notYet = append(notYet, chunk)
		default:
			r.provider.refused(batch, chunk, err)
		}
		if len(queue) == 0 && len(notYet) > 0 {
			_ = r.provider.pause(ctx, wait.Jitter(delay, 0.2))
			queue, notYet, delay = notYet, nil, min(delay*3/2, lastRetry)
		}
	}
}

// isNotYet says whether an instance is in a state in which it cannot be removed, such as Pending, and which it will leave.
// Source: karpenter-provider-alibabacloud (cloudpilot-ai) does not try to remove a Pending instance because that is refused;
// ECS documents IncorrectInstanceStatus, also with a state behind a dot.
func isNotYet(err error) bool { return strings.HasPrefix(codeOf(err), alicloud.CodeInstanceStatus) }

// mayBeOfOne says whether the refusal may be for the sake of one of the instances only.
func mayBeOfOne(err error) bool {
	switch alicloud.ClassOf(err) {
	case alicloud.Invalid, alicloud.NotFound, alicloud.Unknown:
		return true
	}
	return isNotYet(err)
}

// divided parts the instances that the refusal names from the others. Where it names none or all it halves them.
func divided(ids []string, refusal error) [][]string {
	var named, others []string
	for _, id := range ids {
		if strings.Contains(refusal.Error(), id) {
			named = append(named, id)
		} else {
			others = append(others, id)
		}
	}
	if len(named) == 0 || len(others) == 0 {
		half := (len(ids) + 1) / 2
		return [][]string{ids[:half], ids[half:]}
	}
	return [][]string{others, named}
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

// removeChunk sends one call, and the same again under the same token while the cloud is busy, and returns how long it
// had to wait.
func (p *Provider) removeChunk(ctx context.Context, poolID string, ids []string) (waited time.Duration, err error) {
	request := alicloud.RemoveRequest{ScalingGroupID: poolID, InstanceIDs: ids, ClientToken: uuid.NewString(), StopTimeout: stopTimeout}
	p.yield(ctx, poolID)
	began := p.Clock.Now()
	activityID, err := p.Cloud.Remove(ctx, request)
	for delay := firstRetry; err != nil && !isNotYet(err) && sendAgain(alicloud.ClassOf(err), err); delay = min(delay*3/2, lastRetry) {
		klog.V(1).Infof("Pool %s: removal of %d instances has to wait: %v", poolID, len(ids), err)
		if p.pause(ctx, wait.Jitter(delay, 0.2)) != nil || p.awaitRemovals(ctx, poolID) != nil {
			break // the refusal says more than that the time is over
		}
		waited = p.Clock.Since(began)
		activityID, err = p.Cloud.Remove(ctx, request)
	}
	if err == nil {
		p.accepted(poolID, activityID, ids)
	}
	return waited, err
}

// awaitRemovals waits while a removal of the pool is seen in progress: the cloud would refuse another. It waits for no longer
// than one may take whose instances do not stop, and not at all where nobody looks. The error is that of the context.
func (p *Provider) awaitRemovals(ctx context.Context, poolID string) error {
	for end := p.Clock.Now().Add(removalTurn); p.isRemoving(poolID) && p.Clock.Now().Before(end); {
		if err := p.pause(ctx, yieldPause); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) isRemoving(poolID string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, going := range p.removals {
		if going.poolID == poolID && going.begun && going.ended.IsZero() {
			return true
		}
	}
	return false
}

// giveBack removes, without waiting, what a broken atomic purchase brought. Whatever fails is tried again by the next
// Refresh.
func (r *remover) giveBack(poolID string, instances []string) {
	if _, err := r.join(poolID, instances, undone); err != nil {
		klog.Warningf("Cannot roll back %v: %v", instances, err)
	}
}
