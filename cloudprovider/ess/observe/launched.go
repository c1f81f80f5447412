package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

const (
	// maxTagged is how many instances DescribeInstances finds by one tag ("Tag.N.Value" of DescribeInstances).
	maxTagged = 1000
	// idleListing is how often the launched instances of a pool are listed of which nothing is expected. The poll for notices shares
	// the limit of DescribeInstances.
	idleListing = time.Minute
	// launchedTimeout bounds all of these calls in one refresh, so that an ECS that does not answer does not hold up the pools that need
	// none of them.
	launchedTimeout = 15 * time.Second
)

// Launched is what was bought by RunInstances and exists, in its scaling group or not.
type Launched struct {
	// Instances are by id.
	Instances map[string]alicloud.ScalingInstance
	// Activities stand for the purchases: see ledger.LaunchActivities.
	Activities []alicloud.Activity
	// Unread are the pools of which nothing could be listed.
	Unread sets.Set[string]
}

// LaunchQuery says which launched instances are wanted.
type LaunchQuery struct {
	Groups []alicloud.ScalingGroup
	// Launching are the pools that buy by RunInstances. Urgent are pools that may have instances of which nothing is known yet.
	Launching, Urgent sets.Set[string]
	// Unlisted are instances that were promised and have not been listed, each with its pool.
	Unlisted map[string]string
	Last     *snapshot.Snapshot
	Now      time.Time
}

// Launched lists what was bought by RunInstances. A pool of which it cannot be listed has a problem, and keeps the unattached instances
// that it had.
func (r *Reader) Launched(ctx context.Context, query LaunchQuery, problems problem.Set) Launched {
	ctx, cancel := context.WithTimeout(ctx, launchedTimeout)
	defer cancel()
	pools := r.poolsToList(query)
	all, failed := r.tagged(ctx, pools)
	all = r.addExpected(ctx, all, query, failed)
	found := Launched{
		Instances: make(map[string]alicloud.ScalingInstance, len(all)), Activities: ledger.LaunchActivities(all), Unread: sets.KeySet(failed),
	}
	for poolID := range pools {
		if _, before := r.launchesListed[poolID]; failed[poolID] == nil && (before || query.Launching.Has(poolID)) {
			r.launchesListed[poolID] = query.Now
		}
	}
	for _, instance := range all {
		found.Instances[instance.ID] = ledger.ScalingInstance(instance)
	}
	for poolID, err := range failed {
		problems.Add(poolID, problem.Unlisted, fmt.Sprintf("cannot list what was launched for it, so nothing is bought: %s", alicloud.Brief(err)))
	}
	for id, instance := range query.Last.Instances {
		if instance.Unattached && found.Unread.Has(instance.ScalingGroupID) {
			found.Instances[id] = instance
		}
	}
	return found
}

// tagged lists the instances that have the tag of one of the pools. failed says why those of a pool cannot be listed.
func (r *Reader) tagged(ctx context.Context, pools sets.Set[string]) (all []alicloud.Instance, failed map[string]error) {
	var mu sync.Mutex
	failed = map[string]error{}
	var reading errgroup.Group
	reading.SetLimit(maxConcurrent)
	for poolID := range pools {
		reading.Go(func() error {
			listed, err := r.config.Cloud.LaunchedInstances(ctx, api.TagInstancePool, poolID)
			if err == nil && len(listed) >= maxTagged {
				err = fmt.Errorf("there are %d, and ECS lists no more by one tag", len(listed))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[poolID] = err
				return nil
			}
			all = r.appendOwn(all, listed)
			return nil
		})
	}
	_ = reading.Wait() // errors are in failed
	return all, failed
}

// addExpected adds the instances that are expected, not found by their tag, and exist: tags may be listed later than instances. It adds
// the pools of which that cannot be told to those that failed.
func (r *Reader) addExpected(ctx context.Context, all []alicloud.Instance, query LaunchQuery, failed map[string]error) []alicloud.Instance {
	missing := query.expected()
	for _, instance := range all {
		delete(missing, instance.ID)
	}
	maps.DeleteFunc(missing, func(_, poolID string) bool { return failed[poolID] != nil })
	if len(missing) == 0 {
		return all
	}
	named, err := r.config.Cloud.Instances(ctx, slices.Sorted(maps.Keys(missing)))
	if err != nil {
		for _, poolID := range missing {
			failed[poolID] = err
		}
		return all
	}
	return r.appendOwn(all, named)
}

// expected returns the instances that have to exist, each with its pool: those that were promised, and those that were unattached and
// are on no way out.
func (q LaunchQuery) expected() map[string]string {
	expected := maps.Clone(q.Unlisted)
	if expected == nil {
		expected = map[string]string{}
	}
	for id, instance := range q.Last.Instances {
		if instance.Unattached && !q.Last.IsLeaving(instance) && !q.Last.Loop.Reclaiming.Has(id) {
			expected[id] = instance.ScalingGroupID
		}
	}
	managed := q.managed()
	maps.DeleteFunc(expected, func(_, poolID string) bool { return !managed.Has(poolID) })
	return expected
}

func (q LaunchQuery) managed() sets.Set[string] {
	managed := sets.New[string]()
	for _, group := range q.Groups {
		managed.Insert(group.ID)
	}
	return managed
}

// appendOwn appends the instances that have a whole note of this installation.
func (r *Reader) appendOwn(all, listed []alicloud.Instance) []alicloud.Instance {
	for _, instance := range listed {
		if ledger.IsLaunched(instance, r.config.Owner) {
			all = append(all, instance)
		}
	}
	return all
}

// poolsToList returns the pools of which launched instances have to be listed now: those that may have instances of which nothing is
// known, those with an unattached one, and from time to time all that buy by RunInstances or ever did.
func (r *Reader) poolsToList(query LaunchQuery) sets.Set[string] {
	wanted := query.Urgent.Clone()
	for _, instance := range query.Last.Instances {
		if instance.Unattached {
			wanted.Insert(instance.ScalingGroupID)
		}
	}
	for id := range query.Launching {
		if _, listed := r.launchesListed[id]; !listed {
			wanted.Insert(id)
		}
	}
	for id, at := range r.launchesListed {
		if query.Now.Sub(at) >= idleListing {
			wanted.Insert(id)
		}
	}
	return wanted.Intersection(query.managed())
}
