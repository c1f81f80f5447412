package ess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/attacher"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/observe"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/pricing"
)

const refreshTimeout = time.Minute

// Refresh reads the pools and publishes a new snapshot. It also goes on with removals and gangs that were not finished before. If it
// fails, the last snapshot stays. Only a failure before the first success is an error: on an error core does nothing for any pool.
func (p *Provider) Refresh() error { return p.RefreshUntil(p.manager.ctx) }

// RefreshUntil does the same until ctx ends, for callers that have one: core has none.
func (p *Provider) RefreshUntil(ctx context.Context) error {
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	defer context.AfterFunc(p.manager.ctx, cancel)()
	p.finish(ctx)
	return p.refresher.refresh(ctx)
}

// FirstRead returns a channel that is closed once the pools have been read. Before that no node is of a pool, and no instance in one, as far as
// the provider knows.
func (p *Provider) FirstRead() <-chan struct{} { return p.manager.firstRead }

// refresher makes snapshots. It is not safe for concurrent use.
type refresher struct {
	*manager
	config   Config
	groups   *nodeGroups
	reporter *problem.Reporter
	bounds   map[string]pool.Bounds
	reader   *observe.Reader
	others   *observe.Others
	attacher *attacher.Attacher
	catalog  *pool.Catalog
	// launching are the pools that buy by RunInstances.
	launching sets.Set[string]
	// capped are the pools whose spend cap was reported to be reached.
	capped sets.Set[string]
}

func newRefresher(c Config, shared *manager, groups *nodeGroups, reporter *problem.Reporter, bounds map[string]pool.Bounds) *refresher {
	return &refresher{
		manager: shared, config: c, groups: groups, reporter: reporter, bounds: bounds, catalog: pool.NewCatalog(), capped: sets.New[string](), attacher: attacher.New(c.Cloud, c.Clock),
		reader: observe.NewReader(observe.ReaderConfig{Cloud: c.Cloud, Clock: c.Clock, ClusterName: c.ClusterName, Region: c.Region, Named: bounds, Owner: c.Owner}),
		others: observe.NewOthers(observe.OthersConfig{Cloud: c.Cloud, Owner: c.Owner, Configured: c.OtherAutoscaler, ReportFor: c.ReportOthersFor}),
	}
}

func (r *refresher) refresh(ctx context.Context) error {
	started := r.config.Clock.Now()
	if r.reader.TooSoon(started) {
		return nil
	}
	found := problem.Set{}
	seen, outdated, err := r.read(ctx, started, found)
	if err != nil {
		return r.failed(ctx, err)
	}
	for _, short := range r.ledger.Reconcile(seen) {
		r.giveBack(ctx, short)
	}
	r.attacher.Attach(ctx, r.ledger.Attachable(), found)
	pools, isFirst := r.buildPools(seen, found), r.isFirst()
	r.ledger.SetPools(pools, r.catalog.Types(), seen.At)
	last := r.store.Last()
	r.groups.update(last)
	if isFirst {
		close(r.firstRead)
	}
	addIdle(last, found)
	r.reportSpend(last)
	r.ledger.ExposePools()
	r.config.Prices.SetOfferings(offeringsOf(pools), unprotected(pools))
	r.reporter.Update(found)
	r.updateProblem(outdated)
	refreshSeconds.Observe(r.config.Clock.Since(started).Seconds())
	lastRefresh.Set(float64(r.config.Clock.Now().UnixNano()) / 1e9)
	return nil
}

func (r *refresher) failed(ctx context.Context, err error) error {
	refreshErrors.Inc()
	r.updateProblem(err)
	if r.isFirst() {
		return fmt.Errorf("look at the scaling groups of %s for the first time: %w", r.config.Region, err)
	}
	klog.FromContext(ctx).Error(err, "Refresh failed, going on with the last snapshot")
	return nil
}

// updateProblem tells the board whether the pools could be read.
func (r *refresher) updateProblem(err error) {
	if err == nil {
		r.config.Problems.Update(problems.Refresh)
		return
	}
	r.config.Problems.Update(problems.Refresh, problems.Of(err))
}

// isFirst returns whether no refresh has succeeded yet.
func (r *refresher) isFirst() bool { return r.store.Last().Refreshed.IsZero() }

// read makes ⌈G/50⌉ + ⌈N/100⌉ calls, and some for what is new or under way. It reads activities before instances, so that the
// instances of an activity that has ended are all listed. In between it sends the purchases that wait: by then the activities
// have shown whether an earlier attempt was carried out. A pool that buys by RunInstances costs ⌈N/100⌉ calls more while something is
// expected of it. outdated is why configurations, instance types or vSwitches could not be read, so that those of an earlier refresh
// are used.
func (r *refresher) read(ctx context.Context, now time.Time, found problem.Set) (seen ledger.Seen, outdated, err error) {
	seen = ledger.Seen{At: now}
	if seen.Groups, err = r.reader.Groups(ctx, found); err != nil {
		return seen, nil, err
	}
	managed := seen.Managed()
	ids, unread := r.ledger.Unanswered(managed)
	seen.Activities, seen.Recent = r.reader.Activities(ctx, ids, unread, now, found)
	launched := r.readLaunched(ctx, seen.Groups, now, found)
	seen.AddLaunched(launched.Activities, launched.Unread)
	r.ledger.MatchActivities(seen.Recent)
	r.buyer.SendQueued(ctx, managed, func(poolID string) bool { _, read := seen.Recent[poolID]; return read }, now)
	if seen.Instances, err = r.reader.Instances(ctx, managed, launched.Instances, r.store); err != nil {
		return seen, nil, err
	}
	r.others.Check(ctx, seen, found)
	if outdated = r.catalog.Update(ctx, r.config.Cloud, now, seen.Groups, seen.Instances); outdated != nil {
		if r.isFirst() {
			return seen, nil, outdated
		}
		klog.FromContext(ctx).Error(outdated, "Going on with what was read before")
	}
	return seen, outdated, nil
}

// readLaunched lists what was bought by RunInstances. What cannot be listed stays as it was.
func (r *refresher) readLaunched(ctx context.Context, groups []alicloud.ScalingGroup, now time.Time, found problem.Set) observe.Launched {
	r.launching = r.launchPools(groups)
	urgent, unlisted := r.ledger.Launching(r.launching)
	return r.reader.Launched(ctx, observe.LaunchQuery{
		Groups: groups, Launching: r.launching, Urgent: urgent, Unlisted: unlisted, Last: r.store.Last(), Now: now,
	}, found)
}

// launchPools returns the pools that buy by RunInstances: by the tags of their scaling groups, or as they were built last.
func (r *refresher) launchPools(groups []alicloud.ScalingGroup) sets.Set[string] {
	last, launching := r.store.Last(), sets.New[string]()
	for _, group := range groups {
		known := last.Pools[group.ID]
		if group.Tags[api.TagPurchase] == string(settings.PurchaseByLaunch) || known != nil && known.Targeting == pool.TargetLaunch {
			launching.Insert(group.ID)
		}
	}
	return launching
}

// giveBack orders the removal of what an atomic purchase brought that came short. It does not wait; what fails is tried again
// by the next refresh.
func (r *refresher) giveBack(ctx context.Context, short ledger.GiveBack) {
	if _, err := r.remover.Remove(short.PoolID, short.Instances, ledger.CameShort); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot give back instances of a purchase that came short", "instances", short.Instances)
	}
}

// buildPools builds the pool of each scaling group, and enters what is wrong with them. A pool that is out of order stays as it
// was when it last was in order, so that instances on their way count, and nothing is bought of it. One that never was in
// order is left out.
func (r *refresher) buildPools(seen ledger.Seen, found problem.Set) map[string]*pool.Pool {
	inUse := r.ledger.InUse()
	for _, instance := range seen.Instances {
		if !snapshot.IsIncomplete(instance) {
			inUse[instance.ScalingGroupID] = append(inUse[instance.ScalingGroupID], snapshot.OfferingOf(instance))
		}
	}
	last := r.store.Last()
	pools, outOfOrder := make(map[string]*pool.Pool, len(seen.Groups)), map[string]*pool.Pool{}
	for _, group := range seen.Groups {
		source := pool.Source{Region: r.config.Region, Group: group, Whole: r.ledger.IgnoresTargeting(group.ID), InUse: inUse[group.ID]}
		if bounds, named := r.bounds[group.ID]; named {
			source.Bounds = &bounds
		}
		if r.config.Overrides != nil {
			source.Overrides = r.config.Overrides(group.ID)
		}
		built, leftOut, broken := pool.Build(source, r.catalog)
		if broken == nil {
			if len(leftOut) > 0 {
				found.Add(built.ID, problem.LeftOut, errors.Join(leftOut...).Error())
			}
			pools[group.ID] = built
			continue
		}
		found.Add(group.ID, broken.Reason, broken.Err.Error())
		if former := last.Pools[group.ID]; former != nil {
			outOfOrder[group.ID] = former.OutOfOrder(broken.Err.Error())
		}
	}
	for id, built := range pools {
		if built.Targeting == pool.TargetLaunch {
			r.launching.Insert(id)
		}
	}
	for _, built := range pools {
		r.check(built, found)
	}
	maps.Copy(pools, outOfOrder)
	return pools
}

// check enters what is wrong with a pool that was built, and whether it can be bought from.
func (r *refresher) check(built *pool.Pool, found problem.Set) {
	built.Unbuyable = r.ledger.Check(built, r.launching, found)
	for reason, cause := range built.Hazards() {
		found.AddNew(built.ID, reason, cause)
	}
	if stale := built.StalePrices(r.config.Prices); stale != "" {
		found.Add(built.ID, problem.StalePrice, stale)
	}
	r.reportReserve(built)
}

// reportReserve reports, once for each pair of maxima, that a pool at its maximum cannot replace what is being reclaimed: the
// scaling group counts those instances until they are released.
func (r *refresher) reportReserve(built *pool.Pool) {
	own, group := built.MaxSize, built.Group.MaxSize
	if !built.Spot || own < group {
		return
	}
	r.reporter.Once(fmt.Sprintf("reserve/%s/%d/%d", built.ID, own, group), func() {
		r.config.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolWithoutReserve", "Pool %s may grow to %d, and its scaling group holds no more than %d: "+
			"at the maximum a reclaiming instance is replaced only after its release. Set %smax-size lower, or raise the group's maximum",
			built.ID, own, group, api.Prefix)
	})
}

// reportSpend reports, once until it has changed, that the spend cap of a pool keeps anything from being bought.
func (r *refresher) reportSpend(last *snapshot.Snapshot) {
	reached := sets.New[string]()
	for id, known := range last.Pools {
		if known.Settings.SpendCap != 0 && last.SpendCapReached(known, r.config.Prices) {
			reached.Insert(id)
		}
	}
	for id := range r.capped.Difference(reached) {
		spendCapReached.DeleteLabelValues(id)
	}
	for id := range reached.Difference(r.capped) {
		spendCapReached.WithLabelValues(id).Set(1)
		known := last.Pools[id]
		spent, _ := last.Spend(known, nil, r.config.Prices)
		r.config.Events.Eventf(apiv1.EventTypeNormal, "SpotPoolSpendCapReached", "Pool %s costs %.2f%s an hour, and may cost %g (%s): nothing more is bought in it "+
			"until instances are given back or prices fall", id, spent, pool.Currency(r.config.Prices), known.Settings.SpendCap, api.TagSpendCap)
	}
	r.capped = reached
}

// addIdle enters as problems the instances that are on standby or stopped.
func addIdle(last *snapshot.Snapshot, found problem.Set) {
	type state struct{ pool, lifecycle string }
	idle := map[state][]string{}
	for id, instance := range last.Instances {
		if standing := last.StandingOf(instance); standing == snapshot.Standby || standing == snapshot.Stopped {
			key := state{instance.ScalingGroupID, instance.LifecycleState}
			idle[key] = append(idle[key], id)
		}
	}
	reasons := map[string]problem.Reason{alicloud.LifecycleStandby: problem.Standby, alicloud.LifecycleStopped: problem.Stopped}
	for key, ids := range idle {
		if last.Pools[key.pool] == nil {
			continue
		}
		slices.Sort(ids)
		found.Add(key.pool, reasons[key.lifecycle], fmt.Sprintf("%d instances are %s in ESS: they hold room in the scaling group, and nothing is placed on them: %s",
			len(ids), key.lifecycle, snapshot.Abbreviate(ids)))
	}
}

// unprotected returns the instance types of which no pool buys spot instances with a protected hour.
func unprotected(pools map[string]*pool.Pool) sets.Set[string] {
	without, with := sets.New[string](), sets.New[string]()
	for _, known := range pools {
		for _, offered := range known.Offerings {
			switch {
			case !offered.Spot:
			case known.SpotDuration > 0:
				with.Insert(offered.InstanceType)
			default:
				without.Insert(offered.InstanceType)
			}
		}
	}
	return without.Difference(with)
}

// offeringsOf returns the offerings whose prices are wanted: those that the pools launch, and those of which instances are left.
func offeringsOf(pools map[string]*pool.Pool) []pricing.Offering {
	wanted := sets.New[pricing.Offering]()
	for _, known := range pools {
		wanted.Insert(priced(known.Offerings)...)
		for _, offered := range known.NodeGroups {
			if offered.Retired {
				wanted.Insert(offered.Offering)
			}
		}
	}
	return wanted.UnsortedList()
}
