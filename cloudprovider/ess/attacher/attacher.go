// Package attacher puts instances that were bought by RunInstances into their scaling groups, so that ESS looks after them and
// they are given back like all others. They serve before that: their Nodes belong to their offerings by the tags of the instances.
package attacher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

const (
	// sendTimeout bounds one call, so that a cloud that does not answer holds up the refresh for moments only.
	sendTimeout = 10 * time.Second
	// maxConcurrent is how many pools are sent a call at the same time.
	maxConcurrent = 8
	// retryAfter is how long an instance is left alone after ESS accepted to attach it.
	retryAfter = time.Minute
	// reportAfter is how long an instance may be unattached before that is a problem. A scaling group that buys and removes does one
	// thing at a time.
	reportAfter = 5 * time.Minute
)

// Cloud is what an Attacher asks of Alibaba Cloud. *client.Client of package alicloud/client implements it.
type Cloud interface {
	Attach(ctx context.Context, request alicloud.AttachRequest) (activityID string, err error)
}

// Attacher is not safe for concurrent use.
type Attacher struct {
	cloud Cloud
	clock clock.PassiveClock
	// pools are those that have instances to attach.
	pools map[string]*unattached
}

// unattached are the instances of one pool that are not attached yet.
type unattached struct {
	instances map[string]*attempt
	// batch is how many are named in one call. It is halved when ESS refuses, so that an instance that can never be attached does not
	// keep the others.
	batch int
}

// attempt is what is known about an instance that is to be attached.
type attempt struct {
	since time.Time
	// tried is when it was last asked for, accepted when ESS last accepted that; zero if never.
	tried, accepted time.Time
	refusal         error
}

// New returns an Attacher that has attached nothing.
func New(cloud Cloud, clk clock.PassiveClock) *Attacher {
	return &Attacher{cloud: cloud, clock: clk, pools: map[string]*unattached{}}
}

// Attach makes a call for each pool that has instances to attach, which are by pool, and enters as problems those that stay
// unattached. The others have their turn in a later refresh: ESS attaches few at a time, and only while the scaling group does
// nothing else.
func (a *Attacher) Attach(ctx context.Context, attachable map[string][]string, found problem.Set) {
	maps.DeleteFunc(a.pools, func(poolID string, _ *unattached) bool { return len(attachable[poolID]) == 0 })
	var attaching errgroup.Group
	attaching.SetLimit(maxConcurrent)
	for poolID, ids := range attachable {
		if a.pools[poolID] == nil {
			a.pools[poolID] = &unattached{instances: map[string]*attempt{}, batch: alicloud.MaxAttach}
		}
		waiting := a.pools[poolID] // no other goroutine uses it
		waiting.update(ids, a.clock.Now())
		attaching.Go(func() error { a.attach(ctx, poolID, waiting); return nil })
	}
	_ = attaching.Wait() // errors are kept with the instances
	for poolID, waiting := range a.pools {
		waiting.report(poolID, a.clock.Now(), found)
	}
}

// attach asks ESS to attach some of the pool's instances.
func (a *Attacher) attach(ctx context.Context, poolID string, waiting *unattached) {
	ids := waiting.due(a.clock.Now())
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	activityID, err := a.cloud.Attach(ctx, alicloud.AttachRequest{ScalingGroupID: poolID, InstanceIDs: ids, ClientToken: uuid.NewString()})
	waiting.enter(ids, err, a.clock.Now())
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Instances cannot be attached yet", "pool", poolID, "instances", len(ids), "err", err)
		return
	}
	klog.FromContext(ctx).Info("Attaching instances to the scaling group", "pool", poolID, "instances", ids, "activity", activityID)
}

// update forgets the instances that are attached or gone, and adds new ones.
func (u *unattached) update(ids []string, now time.Time) {
	maps.DeleteFunc(u.instances, func(id string, _ *attempt) bool { return !slices.Contains(ids, id) })
	for _, id := range ids {
		if u.instances[id] == nil {
			u.instances[id] = &attempt{since: now}
		}
	}
}

// due returns the instances to name in the next call, those that were asked for longest ago first. It leaves out those that ESS
// accepted within retryAfter.
func (u *unattached) due(now time.Time) []string {
	var due []string
	for id, known := range u.instances {
		if known.accepted.IsZero() || now.Sub(known.accepted) >= retryAfter {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(one, other string) int {
		return cmp.Or(u.instances[one].tried.Compare(u.instances[other].tried), cmp.Compare(one, other))
	})
	return due[:min(len(due), u.batch)]
}

// enter enters the answer to a call.
func (u *unattached) enter(ids []string, err error, now time.Time) {
	for _, id := range ids {
		known := u.instances[id]
		known.tried, known.refusal = now, err
		if err == nil {
			known.accepted = now
		}
	}
	switch {
	case err == nil:
		u.batch = alicloud.MaxAttach
	case !ledger.MaySucceedLater(err):
		u.batch = max(1, u.batch/2)
	}
}

// report enters as a problem the instances that are unattached for too long, or that ESS refuses until somebody mends it.
func (u *unattached) report(poolID string, now time.Time, found problem.Set) {
	var late []string
	for id, known := range u.instances {
		if now.Sub(known.since) >= reportAfter || alicloud.NeedsOperator(known.refusal) {
			late = append(late, id)
		}
	}
	if len(late) == 0 {
		return
	}
	slices.Sort(late)
	var why error // that of the first, so that it is the same until something changes
	for _, id := range late {
		why = cmp.Or(why, u.instances[id].refusal)
	}
	cause := fmt.Sprintf("%d instances were bought for it and are not in it: %s", len(late), snapshot.Abbreviate(late))
	if why != nil {
		cause += ": " + alicloud.Brief(why)
	}
	found.Add(poolID, problem.Unattached, cause)
}
