package ess

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/problems"
)

const (
	refreshTimeout     = time.Minute
	concurrentRequests = 8
)

// observation is what one refresh saw. The order in which it was made matters: activities before instances, so that
// the instances of an activity seen as ended are all in the list.
type observation struct {
	at         time.Time
	groups     []alicloud.ScalingGroup
	managed    sets.Set[string]
	activities map[string]alicloud.Activity
	// recalled are the activities of pools seen for the first time, and of those with a purchase in doubt.
	recalled  map[string][]alicloud.Activity
	instances map[string]alicloud.ScalingInstance
	problems  map[problem]string
	// partial is why a part could not be read, so that what was read before stands for it.
	partial error
}

// Refresh takes a new snapshot. When it fails the last good one is served: only the very first failure is an error,
// because core would otherwise do nothing for any pool.
func (p *Provider) Refresh() error {
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, refreshTimeout)
	defer cancel()

	started := p.Clock.Now()
	if p.tooSoon(started) {
		return nil
	}
	seen, err := p.observe(ctx, started)
	if err != nil {
		return p.refreshFailed(err)
	}
	p.account(seen)
	offerings := p.rebuild(seen)
	p.Prices.SetOfferings(offerings)
	p.reports.settle(seen.problems)
	p.settleRefresh(seen.partial)
	refreshSeconds.Observe(p.Clock.Since(started).Seconds())
	lastRefresh.Set(float64(p.Clock.Now().UnixNano()) / 1e9)
	return nil
}

func (p *Provider) refreshFailed(err error) error {
	refreshErrors.Inc()
	p.settleRefresh(err)
	if p.neverRefreshed() {
		return fmt.Errorf("look at the scaling groups of %s for the first time: %w", p.Region, err)
	}
	klog.Errorf("Refresh failed, going on with the last snapshot: %v", err)
	return nil
}

// settleRefresh enters whether the pools could be read.
func (p *Provider) settleRefresh(err error) {
	if err == nil {
		p.Problems.Settle(problems.Refresh)
		return
	}
	p.Problems.Settle(problems.Refresh, problems.Of(err))
}

func (p *Provider) neverRefreshed() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.refreshed.IsZero()
}

// observe makes ⌈G/50⌉ + ⌈N/100⌉ calls, and some for what is new or under way.
func (p *Provider) observe(ctx context.Context, now time.Time) (*observation, error) {
	seen := &observation{at: now, managed: sets.New[string](), problems: map[problem]string{}}
	var err error
	if seen.groups, err = p.listGroups(ctx, seen.problems); err != nil {
		return nil, err
	}
	for _, group := range seen.groups {
		seen.managed.Insert(group.ID)
	}
	p.listActivities(ctx, seen)
	p.adoptSeen(seen)
	p.sendQueued(ctx, seen)
	if seen.instances, err = p.listInstances(ctx, seen.managed); err != nil {
		return nil, err
	}
	p.noteRivals(ctx, seen)
	if err := p.facts.update(ctx, p.Cloud, now, seen.groups, seen.instances); err != nil {
		if p.neverRefreshed() {
			return nil, err
		}
		klog.Warningf("Going on with what is known: %v", err)
		seen.partial = err
	}
	return seen, nil
}

// listGroups returns the pools: those that are tagged and those that are named, by id.
func (p *Provider) listGroups(ctx context.Context, problems map[problem]string) ([]alicloud.ScalingGroup, error) {
	found := map[string]alicloud.ScalingGroup{}
	if p.ClusterName != "" {
		tagged, err := p.Cloud.ScalingGroups(ctx, alicloud.GroupFilter{Tags: map[string]string{api.TagEnabled: "true"}})
		if err != nil {
			return nil, fmt.Errorf("list the scaling groups tagged %s=true: %w", api.TagEnabled, err)
		}
		for _, group := range tagged {
			if _, ours := group.Tags[api.TagCluster+p.ClusterName]; ours && group.Tags[api.TagEnabled] == "true" {
				found[group.ID] = group
			}
		}
	}
	if len(p.specs) > 0 {
		named, err := p.Cloud.ScalingGroups(ctx, alicloud.GroupFilter{IDs: sets.List(sets.KeySet(p.specs))})
		if err != nil {
			return nil, fmt.Errorf("list the scaling groups of --nodes: %w", err)
		}
		for _, group := range named {
			found[group.ID] = group
		}
		for id := range p.specs {
			if _, exists := found[id]; !exists {
				problems[problem{id, "not_found"}] = "the scaling group named in --nodes does not exist in " + p.Region
			}
		}
	}
	if len(found) == 0 {
		problems[problem{"", "no_pools"}] = fmt.Sprintf("no scaling group of %s is tagged %s=true and %s%s, and none is named in --nodes",
			p.Region, api.TagEnabled, api.TagCluster, p.ClusterName)
	}
	groups := make([]alicloud.ScalingGroup, 0, len(found))
	for _, id := range sets.List(sets.KeySet(found)) {
		groups = append(groups, found[id])
		p.noteOtherClusters(found[id], problems)
	}
	return groups, nil
}

// listInstances lists the region's scaling instances and keeps ours. A page can shift while it is read: an instance that
// went missing without a reason is asked for by name before it is believed gone.
func (p *Provider) listInstances(ctx context.Context, managed sets.Set[string]) (map[string]alicloud.ScalingInstance, error) {
	if managed.Len() == 0 {
		return map[string]alicloud.ScalingInstance{}, nil
	}
	listed, err := p.Cloud.ScalingInstances(ctx, alicloud.InstanceFilter{})
	if err != nil {
		return nil, fmt.Errorf("list scaling instances: %w", err)
	}
	p.listed, p.listedAt = len(listed), p.Clock.Now()
	instances := make(map[string]alicloud.ScalingInstance, len(listed))
	for _, instance := range listed {
		if managed.Has(instance.ScalingGroupID) {
			instances[instance.ID] = instance
		}
	}
	missing := p.missing(instances, managed)
	if len(missing) == 0 {
		return instances, nil
	}
	found, err := p.Cloud.ScalingInstances(ctx, alicloud.InstanceFilter{IDs: missing})
	if err != nil {
		return nil, fmt.Errorf("look for instances that were not listed any more: %w", err)
	}
	for _, instance := range found {
		if managed.Has(instance.ScalingGroupID) {
			instances[instance.ID] = instance
		}
	}
	return instances, nil
}

func (p *Provider) missing(listed map[string]alicloud.ScalingInstance, managed sets.Set[string]) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var ids []string
	for id, instance := range p.instances {
		if _, ok := listed[id]; !ok && !p.isLeaving(instance) && !p.doomed.Has(id) && managed.Has(instance.ScalingGroupID) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
