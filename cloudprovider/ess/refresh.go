package ess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"golang.org/x/sync/errgroup"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

const (
	// EnabledTag with value "true" and ClusterTagPrefix<cluster-name> with any value put a scaling group under
	// management.
	EnabledTag       = "k8s.io/cluster-autoscaler/enabled"
	ClusterTagPrefix = "k8s.io/cluster-autoscaler/"

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
	refreshSeconds.Observe(p.Clock.Since(started).Seconds())
	lastRefresh.Set(float64(p.Clock.Now().UnixNano()) / 1e9)
	return nil
}

func (p *Provider) refreshFailed(err error) error {
	refreshErrors.Inc()
	if p.neverRefreshed() {
		return fmt.Errorf("look at the scaling groups of %s for the first time: %w", p.Region, err)
	}
	klog.Errorf("Refresh failed, going on with the last snapshot: %v", err)
	p.Events.Eventf(apiv1.EventTypeWarning, "SpotRefreshFailed", "Going on with the last snapshot: %v", err)
	return nil
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
	p.sendQueued(ctx, seen.managed)
	p.listActivities(ctx, seen)
	if seen.instances, err = p.listInstances(ctx, seen.managed); err != nil {
		return nil, err
	}
	if err := p.facts.update(ctx, p.Cloud, now, seen.groups, seen.instances); err != nil {
		if p.neverRefreshed() {
			return nil, err
		}
		klog.Warningf("Going on with what is known: %v", err)
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotRefreshFailed", "Going on with what is known: %v", err)
	}
	return seen, nil
}

// listGroups returns the pools: those that are tagged and those that are named, by id.
func (p *Provider) listGroups(ctx context.Context, problems map[problem]string) ([]alicloud.ScalingGroup, error) {
	found := map[string]alicloud.ScalingGroup{}
	if p.ClusterName != "" {
		tagged, err := p.Cloud.ScalingGroups(ctx, alicloud.GroupFilter{Tags: map[string]string{EnabledTag: "true"}})
		if err != nil {
			return nil, fmt.Errorf("list the scaling groups tagged %s=true: %w", EnabledTag, err)
		}
		for _, group := range tagged {
			if _, ours := group.Tags[ClusterTagPrefix+p.ClusterName]; ours && group.Tags[EnabledTag] == "true" {
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
				problems[problem{id, "not_found"}] = "the scaling group named in --nodes does not exist"
			}
		}
	}
	if len(found) == 0 {
		problems[problem{"", "no_pools"}] = fmt.Sprintf("no scaling group of %s is tagged %s=true and %s%s, and none is named in --nodes",
			p.Region, EnabledTag, ClusterTagPrefix, p.ClusterName)
	}
	groups := make([]alicloud.ScalingGroup, 0, len(found))
	for _, id := range sets.List(sets.KeySet(found)) {
		groups = append(groups, found[id])
	}
	return groups, nil
}

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

// listActivities reads the activities that are under way, and all of pools that are new or have a purchase in doubt.
func (p *Provider) listActivities(ctx context.Context, seen *observation) {
	seen.activities, seen.recalled = map[string]alicloud.Activity{}, map[string][]alicloud.Activity{}
	underWay, unread := p.unanswered(seen.managed)
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(concurrentRequests)
	if len(underWay) > 0 {
		asking.Go(func() error {
			activities, err := p.Cloud.Activities(ctx, underWay)
			if err != nil {
				klog.Warningf("Cannot read the scaling activities under way, asking again in the next loop: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, activity := range activities {
				seen.activities[activity.ID] = activity
			}
			return nil
		})
	}
	for _, poolID := range unread {
		asking.Go(func() error {
			activities, err := p.Cloud.GroupActivities(ctx, poolID, "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				seen.problems[problem{poolID, "activities"}] = fmt.Sprintf("cannot read what was bought before, so nothing is bought: %v", err)
			} else {
				seen.recalled[poolID] = activities
			}
			return nil
		})
	}
	_ = asking.Wait() // each reports by itself
}

// unanswered returns the activities to ask about, and the pools of which all have to be read: no activity was ever, or
// a purchase is in doubt.
func (p *Provider) unanswered(managed sets.Set[string]) (activities, unread []string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	ids := sets.New[string]()
	for _, bought := range p.purchases {
		if bought.activityID != "" && !bought.ended {
			ids.Insert(bought.activityID)
		}
	}
	for _, leaving := range p.removals {
		if leaving.activityID != "" {
			ids.Insert(leaving.activityID)
		}
	}
	pools := managed.Difference(p.recalled)
	for _, bought := range p.purchases {
		if bought.refusal != nil && managed.Has(bought.poolID) {
			pools.Insert(bought.poolID)
		}
	}
	return sets.List(ids), sets.List(pools)
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

// account settles purchases and removals against what was seen.
func (p *Provider) account(seen *observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances = seen.instances
	// Of what is gone only that is remembered which still has a Node.
	p.seen = p.seen.Intersection(sets.KeySet(p.providerIDs)).Union(sets.KeySet(seen.instances))
	for poolID, activities := range seen.recalled {
		p.recall(activities)
		p.resolve(poolID, activities)
		p.recalled.Insert(poolID)
		for _, activity := range activities {
			p.judge(activity)
			seen.activities[activity.ID] = activity
		}
	}
	p.recalled = p.recalled.Intersection(seen.managed)
	p.accountPurchases(seen)
	p.accountRemovals(seen)
}

func (p *Provider) accountPurchases(seen *observation) {
	arrivedBy := map[string][]string{}
	for id, instance := range seen.instances {
		if instance.ScalingActivityID != "" {
			arrivedBy[instance.ScalingActivityID] = append(arrivedBy[instance.ScalingActivityID], id)
		}
	}
	for token, bought := range p.purchases {
		if !seen.managed.Has(bought.poolID) {
			delete(p.purchases, token)
			continue
		}
		if bought.activityID != "" {
			bought.arrived.Insert(arrivedBy[bought.activityID]...)
		}
		var answer *alicloud.Activity
		if activity, ok := seen.activities[bought.activityID]; ok {
			answer = &activity
			p.judge(activity)
		}
		p.settle(bought, answer, seen.at)
		left := p.rollBack(bought)
		// What timed out is kept until it has ended: what comes late of a gang has to be given back, too.
		if over := bought.ended || bought.activityID == ""; bought.settled && over && len(bought.placeholders) == 0 && !left {
			delete(p.purchases, token)
		}
		if bought.activityID == "" && !bought.sending && bought.outstanding() == 0 && len(bought.placeholders) == 0 {
			delete(p.purchases, token) // cancelled before it was sent
		}
	}
}

// rollBack gives back what a broken atomic purchase brought, and says whether any of it is left. Needs p.mu.
func (p *Provider) rollBack(bought *purchase) (left bool) {
	if !bought.broken() {
		return false
	}
	var ids []string
	for id := range bought.arrived {
		instance, exists := p.instances[id]
		left = left || exists
		if exists && !p.isLeaving(instance) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseRolledBack",
			"Giving back %d of %d instances of %s: all or nothing was asked for", len(ids), bought.request.Delta,
			bought.offering.groupID(bought.poolID))
		p.remover.giveBack(bought.poolID, ids)
	}
	return left
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

// rebuild makes the pools and node groups anew, and returns the offerings of which prices are wanted.
func (p *Provider) rebuild(seen *observation) []pricing.Offering {
	left := map[string][]offering{}
	for _, instance := range seen.instances {
		left[instance.ScalingGroupID] = append(left[instance.ScalingGroupID], offeringOf(instance))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bought := range p.purchases {
		if bought.targeting != targetWhole {
			left[bought.poolID] = append(left[bought.poolID], bought.offering)
		}
	}
	pools := make(map[string]*pool, len(seen.groups))
	priced := sets.New[pricing.Offering]()
	for _, group := range seen.groups {
		built := p.rebuildPool(seen, group, left[group.ID])
		if built == nil {
			continue
		}
		pools[group.ID] = built
		for _, offered := range built.offerings {
			priced.Insert(offered.priced())
		}
		for _, offered := range built.byGroupID {
			if offered.retired {
				priced.Insert(offered.priced())
			}
		}
	}
	p.pools, p.shapes = pools, maps.Clone(p.facts.types)
	p.whole = p.whole.Intersection(seen.managed)
	p.regroup()
	p.retally()
	p.expose()
	p.refreshed = seen.at
	return priced.UnsortedList()
}

// rebuildPool returns nil for a pool that is out of order. Needs p.mu.
func (p *Provider) rebuildPool(seen *observation, group alicloud.ScalingGroup, left []offering) *pool {
	source := poolSource{region: p.Region, group: group, whole: p.whole.Has(group.ID), left: left}
	if bounds, named := p.specs[group.ID]; named {
		source.bounds = &bounds
	}
	if p.Overrides != nil {
		source.overrides = p.Overrides(group.ID)
	}
	built, partial, broken := buildPool(source, p.facts)
	if broken != nil {
		seen.problems[problem{group.ID, broken.Reason}] = broken.Err.Error()
		return nil
	}
	if !p.recalled.Has(group.ID) {
		built.unbuyable = "its activities have not been read"
	}
	if len(partial) > 0 {
		seen.problems[problem{group.ID, "left_out"}] = errors.Join(partial...).Error()
	}
	for reason, message := range built.hazards() {
		seen.problems[problem{group.ID, reason}] = message
	}
	if stale := p.stalePrices(built); stale != "" {
		seen.problems[problem{group.ID, "stale_price"}] = stale
	}
	p.tellReserve(built)
	return built
}

// tellReserve says, once for each pair of maxima, that a pool at its maximum could not replace what is being reclaimed:
// the scaling group counts that until it is released.
func (p *Provider) tellReserve(pool *pool) {
	own, group := pool.maxSize, pool.group.MaxSize
	if pool.purchase != PurchaseSpot || own < group {
		return
	}
	p.reports.once(fmt.Sprintf("reserve/%s/%d/%d", pool.id, own, group), func() {
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolWithoutReserve", "Pool %s may grow to %d, and its scaling group holds no more than %d: "+
			"at the maximum an instance under reclaim is replaced only after its release. Set %smax-size lower, or raise the group's maximum",
			pool.id, own, group, ownPrefix)
	})
}

// hazards are settings of a scaling group that buy behind the autoscaler's back or keep it from buying.
func (p *pool) hazards() map[string]string {
	found := map[string]string{}
	if p.unbuyable != "" {
		found["unbuyable"] = p.unbuyable
	}
	if p.purchase != PurchaseSpot {
		return found
	}
	if p.group.CompensateWithOnDemand {
		found["compensate_with_on_demand"] = "CompensateWithOnDemand is on: the scaling group buys pay-as-you-go where spot is out"
	}
	if p.group.SpotInstanceRemedy {
		found["spot_instance_remedy"] = "SpotInstanceRemedy is on: the scaling group replaces reclaimed instances by itself, so they are bought twice"
	}
	if p.group.DesiredCapacity != nil {
		found["desired_capacity"] = "the scaling group has a desired capacity: it replaces reclaimed instances by itself, so they are bought twice"
	}
	return found
}

// regroup makes the list of node groups, with one handle per id for ever. Needs p.mu for writing.
func (p *Provider) regroup() {
	var ids []string
	for _, pool := range p.pools {
		for id, known := range pool.byGroupID {
			ids = append(ids, id)
			if p.handles[id] != nil {
				continue
			}
			handle := &Offering{provider: p, id: id, poolID: pool.id, offering: known.offering}
			if pool.targeting == targetWhole {
				handle.offering = offering{"any", "any", pool.purchase}
			}
			p.handles[id] = handle
		}
	}
	slices.SortFunc(ids, strings.Compare)
	groups := make([]cloudprovider.NodeGroup, 0, len(ids))
	for _, id := range ids {
		groups = append(groups, p.handles[id])
	}
	p.groups = groups
}

// expose sets the gauges of the pools. Needs p.mu.
func (p *Provider) expose() {
	poolTargeting.Reset()
	poolInstances.Reset()
	for id, pool := range p.pools {
		poolTargeting.WithLabelValues(id, string(pool.targeting)).Set(1)
		counted := p.poolTally(id)
		for state, n := range map[string]int{
			"live": counted.live, "outstanding": counted.outstanding, "doomed": counted.doomed, "removing": counted.removing,
		} {
			poolInstances.WithLabelValues(id, state).Set(float64(n))
		}
	}
}
