// Package observe reads scaling groups, activities and instances from the cloud, and finds other autoscalers at work on them.
package observe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

const (
	// maxConcurrent is how many calls are made at the same time.
	maxConcurrent = 8
	// historyAge is how far back the activities of a pool are read: further than anything that still has to be settled.
	historyAge = time.Hour
	// instancesPerPage is how many instances one call lists.
	instancesPerPage = 100
	// freePages may be listed in every refresh. Each further page delays the next listing by pageCost, which is how long the
	// client needs to earn a call of its limit of 25 listing calls a second.
	freePages = 10
	pageCost  = time.Second / 25
)

// Cloud is what a Reader asks of Alibaba Cloud. *client.Client of package alicloud/client implements it.
type Cloud interface {
	ScalingGroups(ctx context.Context, filter alicloud.GroupFilter) ([]alicloud.ScalingGroup, error)
	ScalingInstances(ctx context.Context, filter alicloud.InstanceFilter) ([]alicloud.ScalingInstance, error)
	Activities(ctx context.Context, ids []string) ([]alicloud.Activity, error)
	GroupActivities(ctx context.Context, groupID string, since time.Time) ([]alicloud.Activity, error)
	LaunchedInstances(ctx context.Context, tag, value string) ([]alicloud.Instance, error)
	// Instances returns the ECS instances with the ids, without those that do not exist.
	Instances(ctx context.Context, ids []string) ([]alicloud.Instance, error)
}

// ReaderConfig is what a Reader is made of.
type ReaderConfig struct {
	Cloud Cloud
	Clock clock.PassiveClock
	// ClusterName is that of the discovery tag; empty means that nothing is discovered.
	ClusterName string
	Region      string
	// Named are the scaling groups of --nodes.
	Named map[string]pool.Bounds
	// Owner is that of ledger.Config.
	Owner string
}

// Reader reads what a refresh needs. It is not safe for concurrent use.
type Reader struct {
	config ReaderConfig
	// listed is how many instances there were in the region at listedAt.
	listed   int
	listedAt time.Time
	// launchesListed is when the launched instances of a pool were last listed, of those pools that had any or buy by RunInstances.
	launchesListed map[string]time.Time
}

// NewReader returns a Reader.
func NewReader(config ReaderConfig) *Reader {
	return &Reader{config: config, launchesListed: map[string]time.Time{}}
}

// TooSoon returns whether listing the instances again would take more calls than the client may make, so that the last snapshot has to do.
// While pods are pending, loops follow each other within a fraction of a second; listing ten thousand instances in each would
// soon make every loop wait four seconds before it buys. Purchases and removals are in the snapshot all the same.
func (r *Reader) TooSoon(now time.Time) bool {
	pages := (r.listed + instancesPerPage - 1) / instancesPerPage
	return now.Before(r.listedAt.Add(time.Duration(max(0, pages-freePages)) * pageCost))
}

// Groups returns the scaling groups under management, by id: those that are tagged and those that are named.
func (r *Reader) Groups(ctx context.Context, found problem.Set) ([]alicloud.ScalingGroup, error) {
	groups := map[string]alicloud.ScalingGroup{}
	if r.config.ClusterName != "" {
		tagged, err := r.config.Cloud.ScalingGroups(ctx, alicloud.GroupFilter{Tags: map[string]string{api.TagEnabled: "true"}})
		if err != nil {
			return nil, fmt.Errorf("list the scaling groups tagged %s=true: %w", api.TagEnabled, err)
		}
		for _, group := range tagged {
			if _, ours := group.Tags[api.TagCluster+r.config.ClusterName]; ours && group.Tags[api.TagEnabled] == "true" {
				groups[group.ID] = group
			}
		}
	}
	if err := r.addNamed(ctx, groups, found); err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		found.Add("", problem.NoPools, fmt.Sprintf("no scaling group of %s is tagged %s=true and %s%s, and none is named in --nodes",
			r.config.Region, api.TagEnabled, api.TagCluster, r.config.ClusterName))
	}
	sorted := make([]alicloud.ScalingGroup, 0, len(groups))
	for _, id := range sets.List(sets.KeySet(groups)) {
		sorted = append(sorted, groups[id])
		r.checkClusters(groups[id], found)
	}
	return sorted, nil
}

func (r *Reader) addNamed(ctx context.Context, groups map[string]alicloud.ScalingGroup, found problem.Set) error {
	if len(r.config.Named) == 0 {
		return nil
	}
	named, err := r.config.Cloud.ScalingGroups(ctx, alicloud.GroupFilter{IDs: sets.List(sets.KeySet(r.config.Named))})
	if err != nil {
		return fmt.Errorf("list the scaling groups of --nodes: %w", err)
	}
	for _, group := range named {
		groups[group.ID] = group
	}
	for id := range r.config.Named {
		if _, exists := groups[id]; !exists {
			found.Add(id, problem.NotFound, "the scaling group named in --nodes does not exist in "+r.config.Region)
		}
	}
	return nil
}

// Activities reads the activities with these ids, and all recent activities of these pools. What cannot be read is missing
// from the result; a pool whose activities cannot be read has a problem.
func (r *Reader) Activities(ctx context.Context, ids, pools []string, now time.Time, found problem.Set) (
	byID map[string]alicloud.Activity, recent map[string][]alicloud.Activity) {
	byID, recent = map[string]alicloud.Activity{}, map[string][]alicloud.Activity{}
	var mu sync.Mutex
	var reading errgroup.Group
	reading.SetLimit(maxConcurrent)
	if len(ids) > 0 {
		reading.Go(func() error {
			activities, err := r.config.Cloud.Activities(ctx, ids)
			if err != nil {
				klog.FromContext(ctx).Info("Cannot read the scaling activities under way, asking again in the next loop", "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, activity := range activities {
				byID[activity.ID] = activity
			}
			return nil
		})
	}
	for _, poolID := range pools {
		reading.Go(func() error {
			activities, err := r.config.Cloud.GroupActivities(ctx, poolID, now.Add(-historyAge))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				found.Add(poolID, problem.Activities, fmt.Sprintf("cannot read what was bought before, so nothing is bought: %s", alicloud.Brief(err)))
			} else {
				recent[poolID] = activities
			}
			return nil
		})
	}
	_ = reading.Wait() // errors are logged or entered as problems
	return byID, recent
}

// Instances lists the instances of the managed scaling groups, by id, with those that were launched for them and are in none yet. An
// instance that was launched keeps the token of its purchase as its activity, not the id of the activity that attached it. Pages may
// shift while they are read, so an instance of the last snapshot that is missing without a reason is asked for by its id before it
// counts as gone. The snapshot is taken after the list was read, because it knows the removals that were ordered meanwhile.
func (r *Reader) Instances(ctx context.Context, managed sets.Set[string], launched map[string]alicloud.ScalingInstance,
	store *snapshot.Store) (map[string]alicloud.ScalingInstance, error) {
	instances := maps.Clone(launched)
	if instances == nil {
		instances = map[string]alicloud.ScalingInstance{}
	}
	if managed.Len() == 0 {
		return instances, nil
	}
	add := func(listed []alicloud.ScalingInstance) {
		last := store.Last()
		for _, instance := range listed {
			if managed.Has(instance.ScalingGroupID) {
				instances[instance.ID] = complete(instance, launched, last)
			} else {
				delete(instances, instance.ID) // somebody has put it into another scaling group
			}
		}
	}
	listed, err := r.config.Cloud.ScalingInstances(ctx, alicloud.InstanceFilter{})
	if err != nil {
		return nil, fmt.Errorf("list scaling instances: %w", err)
	}
	r.listed, r.listedAt = len(listed), r.config.Clock.Now()
	add(listed)
	last := store.Last()
	var missing []string
	for id, instance := range last.Instances {
		now, ok := instances[id]
		leftGroup := !instance.Unattached && (!ok || now.Unattached)
		if leftGroup && managed.Has(instance.ScalingGroupID) && !last.IsLeaving(instance) && !last.Loop.Reclaiming.Has(id) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return instances, nil
	}
	slices.Sort(missing)
	found, err := r.config.Cloud.ScalingInstances(ctx, alicloud.InstanceFilter{IDs: missing})
	if err != nil {
		return nil, fmt.Errorf("look for instances that were not listed any more: %w", err)
	}
	add(found)
	return instances, nil
}

// complete returns the instance with what ESS leaves out of it: what ECS says if RunInstances created it, else what was known before. ESS says of
// an instance that was attached by which activity, and when, that was done.
func complete(instance alicloud.ScalingInstance, launched map[string]alicloud.ScalingInstance, last *snapshot.Snapshot) alicloud.ScalingInstance {
	known, ok := launched[instance.ID]
	if !ok { // launches are not listed in each refresh
		if known, ok = last.Instances[instance.ID]; !ok {
			return instance
		}
	}
	instance.ScalingActivityID = cmp.Or(known.ScalingActivityID, instance.ScalingActivityID)
	if !known.Created.IsZero() {
		instance.Created = known.Created
	}
	instance.InstanceType = cmp.Or(instance.InstanceType, known.InstanceType)
	instance.ZoneID = cmp.Or(instance.ZoneID, known.ZoneID)
	instance.SpotStrategy = cmp.Or(instance.SpotStrategy, known.SpotStrategy)
	return instance
}
