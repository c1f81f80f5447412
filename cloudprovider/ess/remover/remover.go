// Package remover gives instances back to the cloud. Core removes nodes one by one; the remover collects those of one pool and
// removes them with as few calls as possible.
package remover

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/batch"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// timeout bounds the removal of one batch. It is below the five minutes that core gives a deletion.
	timeout = 4 * time.Minute
	// stopTimeout is how long an instance is given to stop, the least that ESS allows. Its pods are gone by then; a process that
	// still runs is lost either way, and until the instance is gone the scaling group does nothing else.
	stopTimeout = 30 * time.Second
	// maxTurn bounds how long removals are waited for that were accepted: instances are given stopTimeout, and then
	// released.
	maxTurn = 4 * stopTimeout
	// PurchasesFirst is how long a removal lets purchases of its pool go first.
	PurchasesFirst = time.Minute
	// pollInterval is how often the ledger is looked at while waiting.
	pollInterval = time.Second
)

// retries are the waits between attempts of a removal that cannot be carried out now.
func retries() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 1.5, Jitter: 0.2, Steps: 1 << 20, Cap: 10 * time.Second}
}

// Cloud is what a Remover asks of Alibaba Cloud. *client.Client of package alicloud/client implements it.
type Cloud interface {
	Remove(ctx context.Context, request alicloud.RemoveRequest) (activityID string, err error)
	Delete(ctx context.Context, instanceIDs []string, clientToken string) error
}

// Config is what a Remover is made of.
type Config struct {
	Cloud    Cloud
	Clock    clock.Clock
	Store    *snapshot.Store
	Removals *ledger.Removals
	// Window is how long removals of one pool are collected.
	Window time.Duration
	// Occupied returns those of the instances on whose Nodes pods run by now. What came short of a gang stays then.
	Occupied func(instanceIDs sets.Set[string]) sets.Set[string]
	// Removed is told which instances the cloud has accepted to remove. It must not block.
	Removed func(instanceIDs []string)
}

// Remover is safe for concurrent use.
type Remover struct {
	config  Config
	batches *batch.Batcher[string, request, error]
}

// request asks for the removal of one instance.
type request struct {
	instanceID string
	reason     ledger.RemovalReason
}

// New returns a Remover that works until the context ends.
func New(ctx context.Context, config Config) *Remover {
	r := &Remover{config: config}
	r.batches = batch.New(ctx, config.Clock, config.Window, r.removeBatch)
	return r
}

// Stop refuses new removals and waits for those under way.
func (r *Remover) Stop() { r.batches.Stop() }

// Removal is an ordered removal of instances of one pool.
type Removal struct {
	instances []string
	pending   *batch.Pending[request, error]
}

// Remove orders the removal of the pool's instances. It does not wait. The error wraps batch.ErrStopped.
func (r *Remover) Remove(poolID string, instances []string, reason ledger.RemovalReason) (*Removal, error) {
	var requests []request
	for _, id := range instances {
		requests = append(requests, request{id, reason})
	}
	pending, err := r.batches.Add(poolID, requests...)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", poolID, err)
	}
	return &Removal{instances, pending}, nil
}

// Wait waits until the cloud has accepted or refused the removal. It returns an error for each instance that is not removed.
func (r *Removal) Wait() map[string]error {
	failed := map[string]error{}
	for i, err := range r.pending.Wait() {
		if err != nil {
			failed[r.instances[i]] = err
		}
	}
	return failed
}

// removeBatch removes the instances of one pool. The errors are by request.
func (r *Remover) removeBatch(ctx context.Context, poolID string, requests []request) []error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	wanted := map[string]ledger.RemovalReason{}
	for _, asked := range requests {
		wanted[asked.instanceID] = max(asked.reason, wanted[asked.instanceID])
	}
	begun, failed := r.config.Removals.Begin(poolID, wanted)
	maps.Copy(failed, r.removeAll(ctx, poolID, begun))
	errs := make([]error, 0, len(requests))
	for _, asked := range requests {
		errs = append(errs, failed[asked.instanceID])
	}
	return errs
}

// removeChunk sends one call, and the same again under the same token while the cloud is busy. A scaling group without a desired
// capacity does one thing at a time ("Considerations" in the Auto Scaling documentation), so purchases that wait and removals
// that were accepted go first.
func (r *Remover) removeChunk(ctx context.Context, poolID string, ids []string) error {
	request := alicloud.RemoveRequest{ScalingGroupID: poolID, InstanceIDs: ids, ClientToken: uuid.NewString(), StopTimeout: stopTimeout}
	// If the context ends while it waits, the call says so.
	_ = r.waitWhile(ctx, PurchasesFirst, func() bool { return r.config.Removals.PurchasesWait(poolID) })
	_ = r.waitForRemovals(ctx, poolID)
	var activityID string
	err := r.retry(ctx, poolID, r.unlessOccupied(ids, func() error {
		return r.untilAnswered(ctx, func(ctx context.Context) (err error) {
			activityID, err = r.config.Cloud.Remove(ctx, request)
			return err
		})
	}), func() error { return r.waitForRemovals(ctx, poolID) })
	if err != nil {
		return err
	}
	r.config.Removals.Accepted(poolID, activityID, ids)
	klog.FromContext(ctx).Info("Gave back instances", "pool", poolID, "instances", ids, "activity", activityID)
	r.config.Removed(ids)
	return nil
}

// occupiedError says on which instances pods run that were to be given back because a purchase for a gang came short. They stay.
type occupiedError struct{ ids sets.Set[string] }

func (e *occupiedError) Error() string {
	return "pods run by now on " + strings.Join(sets.List(e.ids), ", ")
}

// checkOccupied returns an *occupiedError if pods run on what came short of a gang: minutes may pass until it is the turn of its removal, and its
// Nodes take pods meanwhile.
func (r *Remover) checkOccupied(ids []string) error {
	if occupied := r.config.Occupied(r.config.Removals.CameShort(ids)); len(occupied) > 0 {
		return &occupiedError{occupied}
	}
	return nil
}

// unlessOccupied returns the call with checkOccupied before it. If an attempt without an answer was carried out all the same, the next listing
// shows that the instance leaves, whatever was entered of it.
func (r *Remover) unlessOccupied(ids []string, call func() error) func() error {
	return func() error {
		if err := r.checkOccupied(ids); err != nil {
			return err
		}
		return call()
	}
}

// retry makes the call until the cloud accepts it, refuses it for good, or the context ends. Before each repetition it waits for ready.
func (r *Remover) retry(ctx context.Context, poolID string, call, ready func() error) error {
	err := call()
	for delays := retries(); err != nil && !isNotYet(err) && ledger.MaySucceedLater(err); {
		klog.FromContext(ctx).V(1).Info("A removal has to wait", "pool", poolID, "err", err)
		if work.Sleep(ctx, r.config.Clock, delays.Step()) != nil || ready() != nil {
			break // the cloud's refusal says more than that the time is over
		}
		err = call()
	}
	return err
}

// waitForRemovals waits while the scaling group is busy with removals that it has accepted, for no longer than maxTurn. The error
// is that of the context.
func (r *Remover) waitForRemovals(ctx context.Context, poolID string) error {
	if r.inParallel(poolID) {
		return nil
	}
	return r.waitWhile(ctx, maxTurn, func() bool { return r.config.Removals.InProgress(poolID) })
}

// inParallel returns whether the scaling group takes removals while it does something else.
func (r *Remover) inParallel(poolID string) bool {
	pool := r.config.Store.Last().Pools[poolID]
	return pool != nil && pool.Group.DesiredCapacity != nil
}

// waitWhile waits while the condition holds, for no longer than the duration. The error is that of the context.
func (r *Remover) waitWhile(ctx context.Context, most time.Duration, holds func() bool) error {
	for end := r.config.Clock.Now().Add(most); holds() && r.config.Clock.Now().Before(end); {
		if err := work.Sleep(ctx, r.config.Clock, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// isNotYet returns whether an instance is in a state in which it cannot be removed, such as Pending, and which it will leave.
// Source: karpenter-provider-alibabacloud (cloudpilot-ai) does not try to remove a Pending instance because that is refused;
// ECS documents IncorrectInstanceStatus, also with a state behind a dot.
func isNotYet(err error) bool {
	return strings.HasPrefix(alicloud.CodeOf(err), alicloud.CodeInstanceStatus)
}

// mayConcernOne returns whether the refusal may concern only one of the instances.
func mayConcernOne(err error) bool {
	switch alicloud.ClassOf(err) {
	case alicloud.Invalid, alicloud.NotFound, alicloud.Unknown:
		return true
	}
	return isNotYet(err)
}

// divide separates the instances that the refusal names from the others. Where it names none or all, it halves them.
func divide(ids []string, refusal error) [][]string {
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
