package app

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/loop"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud/dryrun"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/gangs"
	"gpu-spot-autoscaler/cloudprovider/jobs/intervals"
	"gpu-spot-autoscaler/cloudprovider/jobs/supervisor"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/trigger"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/trim"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/pricing/market"
)

const (
	// firstLists is how long the informers may take to list the objects of the cluster.
	firstLists = 2 * time.Minute
	// firstRefreshRetry is how long to wait at start before the pools are read again.
	firstRefreshRetry = 5 * time.Second
	// firstPrices is how long the first loop waits for prices at most: buying without prices is better than not buying.
	firstPrices = 10 * time.Second
)

// parts are what runs while this process leads.
type parts struct {
	informers informers.SharedInformerFactory
	overrides *overrides
	ack       *ackAutoscaler
	problems  *problems.Board
	// dryRun is nil unless this is a dry run.
	dryRun     *dryrun.Cloud
	status     *statusWriter
	prices     *pricing.Book
	ledger     *ledger.Ledger
	market     *market.Keeper
	deadlines  *deadline.Desk
	jobs       *jobs.Registry
	gangs      *gangs.Gangs
	reclaimer  *reclaim.Controller
	supervisor *supervisor.Supervisor
	intervals  *intervals.Adviser
	provider   *ess.Provider
	core       core.Autoscaler
	trigger    *trigger.Trigger
	pods       *podFlow
	explainer  *explain.Explainer
	// provisioning is nil unless ProvisioningRequests are enabled.
	provisioning *provisioning
}

// autoscale builds the parts and runs them until ctx ends or one of them fails. If ctx ended, it returns nil after the loop under
// way.
func autoscale(ctx context.Context, r *replica) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	p, err := build(ctx, r.config, r.snapshotter)
	if err != nil {
		return err
	}
	r.health.StartMonitoring()
	r.readiness.Lead(p.problems)
	group.Go(func() error { p.status.run(ctx); return nil })
	group.Go(func() error {
		factories := []informers.SharedInformerFactory{p.informers, p.overrides.informers, p.ack.informers}
		return whileListed(ctx, firstLists, factories, func(ctx context.Context) error {
			r.status.Lead(ctx, p)
			r.costs.Lead(ctx, p.ledger)
			r.explanations.Lead(ctx, p.explainer)
			return p.run(ctx, r)
		})
	})
	return group.Wait()
}

// run runs everything that needs the informers until ctx ends or a part of it fails.
func (p *parts) run(ctx context.Context, r *replica) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.prices.Run(ctx); return nil })
	group.Go(func() error { p.ledger.Run(ctx); return nil })
	group.Go(func() error { p.market.Run(ctx); return nil })
	group.Go(func() error { p.deadlines.Run(ctx); return nil })
	group.Go(func() error { return unlessDone(ctx, p.jobs.Run(ctx)) })
	group.Go(func() error { return unlessDone(ctx, p.gangs.Run(ctx)) })
	group.Go(func() error { return unlessDone(ctx, p.reclaimer.Run(ctx)) })
	group.Go(func() error {
		if err := p.firstRefresh(ctx, r.health); err != nil {
			return unlessDone(ctx, err)
		}
		// Only now are the pools known in which there may be room for jobs.
		group.Go(func() error { return unlessDone(ctx, p.supervisor.Run(ctx)) })
		group.Go(func() error { p.intervals.Run(ctx); return nil })
		return p.loop(ctx, r.config, r.health)
	})
	return group.Wait()
}

// Describe adds to the status what the leader knows.
func (p *parts) Describe(to *status.Status) {
	pools, refreshed := p.provider.Pools()
	to.Pools = pools
	if !refreshed.IsZero() {
		to.Refreshed = ptr.To(refreshed.UTC())
	}
	to.Spend = spend(pools, p.ledger.Report())
	to.Currency = p.prices.Currency()
	var err error
	if to.Pending, to.PendingTotal, err = p.explainer.Pending(); err != nil {
		klog.ErrorS(err, "Cannot tell which pods wait")
	}
	to.Reclaims, to.Jobs = p.reclaimer.Reclaims(), p.reclaimer.JobReclaims()
	if p.dryRun != nil {
		to.DryRun = dryRunStatus(p.dryRun.Decisions())
	}
	for _, active := range p.problems.Report().Problems {
		to.Problems = append(to.Problems, status.Problem{
			Source: string(active.Source), Pool: active.Pool, Reason: active.Reason, Message: active.Text(), Since: active.Since.UTC(),
		})
	}
}

// dryRunStatus returns what would have been done, as the status has it.
func dryRunStatus(decisions []dryrun.Decision) *status.DryRun {
	result := &status.DryRun{Decisions: []status.Decision{}}
	for _, d := range decisions {
		result.Decisions = append(result.Decisions, status.Decision{
			Time: d.Time.UTC(), Action: d.Action, Pool: d.Pool, Count: d.Count, InstanceType: d.InstanceType, Zone: d.Zone, SpotStrategy: d.SpotStrategy,
			Instances: d.Instances,
		})
	}
	return result
}

// spend returns what the pools cost, nil before anything is accounted for.
func spend(pools []status.Pool, report ledger.Report) *status.Spend {
	if report.Until.IsZero() {
		return nil
	}
	s := &status.Spend{Since: report.Since, Cost: report.Total.Cost, OnDemand: report.Total.OnDemand}
	for i := range pools {
		for _, offering := range pools[i].Offerings {
			s.PerHour += float64(offering.Live) * ptr.Deref(offering.Price, 0)
		}
	}
	return s
}

// whileListed starts the informers of the factories, does the work once they have listed everything, and returns its error, or why
// they could not list, after the informers have ended.
func whileListed(ctx context.Context, timeout time.Duration, factories []informers.SharedInformerFactory, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // Shutdown waits for the informers, and only this ends them.
		for _, factory := range factories {
			factory.Shutdown()
		}
	}()
	for _, factory := range factories {
		factory.Start(ctx.Done())
		if err := listAll(ctx, timeout, factory); err != nil {
			return unlessDone(ctx, err)
		}
	}
	return work(ctx)
}

// listAll waits until the informers have listed everything. A process without the roles of its version would wait for ever, while it
// leads: it returns an error instead that says what it could not list.
func listAll(ctx context.Context, timeout time.Duration, factory informers.SharedInformerFactory) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for kind, synced := range factory.WaitForCacheSync(bounded.Done()) {
		if !synced {
			return fmt.Errorf("list %v: not complete within %v; do the roles allow it?", kind, timeout)
		}
	}
	return nil
}

// unlessDone returns nil instead of an error that may only be due to the end of ctx.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// loop runs core's loop each time the trigger fires.
func (p *parts) loop(ctx context.Context, config *Config, health *metrics.HealthCheck) error {
	p.awaitPrices(ctx)
	defer p.cleanUp(ctx, config)
	if err := p.core.Start(); err != nil {
		return fmt.Errorf("start cluster autoscaler: %w", err)
	}
	// Core alternates between pods and ProvisioningRequests: after a loop for one that bought nothing, the next may buy for the
	// other.
	var last, beforeLast time.Time
	for productive := true; p.trigger.Wait(ctx, productive, p.pods.deferral.NextWake) == nil; {
		beforeLast, last = last, time.Now()
		loop.RunAutoscalerOnce(p.core, health, last)
		since := last
		if p.provisioning != nil {
			since = beforeLast
		}
		productive = p.productive(since)
	}
	return nil
}

// firstRefresh waits until the provider has read the pools. Core begins its first loop by removing the taints that a killed
// predecessor left on our nodes. It does so once, and before it refreshes the provider: without pools no node would be ours.
//
// The process counts as alive however long that takes, since a restart would not help: /readyz says what is wrong.
func (p *parts) firstRefresh(ctx context.Context, health *metrics.HealthCheck) error {
	return wait.PollUntilContextCancel(ctx, firstRefreshRetry, true, func(ctx context.Context) (bool, error) {
		health.UpdateLastSuccessfulRun(time.Now())
		err := p.provider.RefreshUntil(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read the pools yet, will try again", "after", firstRefreshRetry)
		}
		return err == nil, nil
	})
}

// awaitPrices waits until the prices of the pools that the first refresh found have been looked up.
func (p *parts) awaitPrices(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, firstPrices)
	defer cancel()
	if err := p.prices.AwaitFirstLookup(ctx); err != nil {
		logger.Info("Starting without all prices", "err", err)
	}
}

// productive returns whether a loop since then bought, removed or provisioned something: there may be more to do.
func (p *parts) productive(since time.Time) bool {
	if p.provisioning != nil && !p.provisioning.injector.LastProvisioningRequestProcessTime().Before(since) {
		return true
	}
	return !p.core.LastScaleUpTime().Before(since) || !p.core.LastScaleDownDeleteTime().Before(since)
}

// cleanUp ends core. Core cleans up the provider only if it writes a status ConfigMap.
func (p *parts) cleanUp(ctx context.Context, config *Config) {
	p.core.ExitCleanUp()
	if config.Autoscaling.WriteStatusConfigMap {
		return
	}
	if err := p.provider.Cleanup(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot clean up the provider")
	}
}

// build constructs the parts. Nothing runs yet.
func build(ctx context.Context, config *Config, snapshotter debuggingsnapshot.DebuggingSnapshotter) (*parts, error) {
	transform := trim.New()
	p := &parts{informers: informers.NewSharedInformerFactoryWithOptions(config.Kube, 0, informers.WithTransform(transform))}
	trim.WatchPods(p.informers, transform)
	kube := cacontext.NewAutoscalingKubeClients(config.Autoscaling, config.Kube, p.informers)
	events := newDeploymentEvents(ctx, config.Kube, newDeploymentRecorder(ctx, config.Kube), config.Autoscaling.ConfigNamespace, config.DeploymentName)

	p.problems, p.dryRun = problems.NewBoard(events, config.Clock), config.DryRun
	p.status = &statusWriter{
		client: config.Kube, namespace: config.Autoscaling.ConfigNamespace, name: config.DeploymentName + options.StatusSuffix,
		identity: config.Identity, board: p.problems, clock: config.Clock,
	}

	var err error
	if config.Autoscaling.ProvisioningRequestEnabled {
		if p.provisioning, err = newProvisioning(config); err != nil {
			return nil, err
		}
	}
	arrivals := podlist.NewArrivals(config.Clock)
	p.trigger = trigger.New(trigger.Config{
		Clock: config.Clock, Interval: config.Autoscaling.ScanInterval, Arrivals: arrivals,
		BypassedSchedulers: config.Autoscaling.BypassedSchedulers,
	})
	if _, err := p.informers.Core().V1().Pods().Informer().AddEventHandler(p.trigger.PodHandler()); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}

	if p.jobs, p.gangs, err = newJobs(config, kube.Recorder, p.trigger.Notify); err != nil {
		return nil, err
	}
	reclaims, err := newReclaimState(config, p.informers, p.jobs)
	if err != nil {
		return nil, err
	}
	marks, drains, err := reclaim.Clients(config.KubeConfig, config.ReclaimRateLimits)
	if err != nil {
		return nil, err
	}
	if p.overrides, err = newOverrides(config.Kube, config.Autoscaling.ConfigNamespace); err != nil {
		return nil, err
	}
	p.ack = newACKAutoscaler(config.Kube, config.Autoscaling.ConfigNamespace)
	p.prices = pricing.NewBook(pricing.BookOptions{
		Source: config.Cloud, Interval: config.PriceRefreshInterval, MaxAge: config.PriceMaxAge, Clock: config.Clock,
	})
	memory := market.NewMemory()
	if p.provider, err = ess.New(ess.Config{
		Cloud: config.Cloud, Prices: p.prices, Events: events, Problems: p.problems, Clock: config.Clock,
		Owner: owner(ctx, config), OtherAutoscaler: p.ack.manages, ReportOthersFor: reportOthersFor * config.Autoscaling.ScanInterval,
		ClusterName: config.Autoscaling.ClusterName, Region: config.Region, NodeGroupSpecs: config.Autoscaling.NodeGroups,
		ResourceLimiter: cacontext.NewResourceLimiterFromAutoscalingOptions(config.Autoscaling),
		Reclaiming:      reclaims.notices.Reclaiming, Occupied: reclaims.cluster.Occupied, Removed: reclaims.removals.Note,
		Lost:      func() sets.Set[string] { return notice.Lost(reclaims.notices) },
		Overrides: p.overrides.of, Wake: p.trigger.Notify, Market: memory, Terms: config.Terms, Shortages: config.Shortages,
		MaxProvisionTime: config.Autoscaling.NodeGroupDefaults.MaxNodeProvisionTime,
	}); err != nil {
		return nil, err
	}
	if p.supervisor, err = supervisor.New(supervisor.Config{
		Jobs: p.jobs, Pools: p.provider, Client: drains, Informers: p.informers, Recorder: kube.Recorder, Clock: config.Clock,
		Wake: p.trigger.Notify,
	}); err != nil {
		return nil, err
	}
	p.intervals = newAdviser(config, p, memory, kube.Recorder)
	faults, err := faultSettings(config.Faults)
	if err != nil {
		return nil, err
	}
	p.deadlines = deadline.NewDesk(deadline.Config{Memory: memory, Price: marketPrice(p.prices), Terms: config.Terms, Clock: config.Clock})
	p.pods = newPodFlow(config, p.provisioning, p.provider, p.deadlines, arrivals, p.supervisor, p.gangs)
	if p.reclaimer, err = reclaim.New(reclaim.Config{
		Cluster: reclaims.cluster, Notices: reclaims.notices, Removals: reclaims.removals, Cloud: config.Cloud, Jobs: p.jobs, Client: drains,
		MarkClient: marks, Recorder: kube.Recorder, Clock: config.Clock, PollInterval: config.ReclaimPollInterval, OnNotice: p.trigger.Notify,
		Lists: p.provider.Lists, Replaced: p.pods.reclaiming.AllPlaced, ReplacementReady: p.pods.replacementReady(config),
		ReplaceWait: config.ReclaimReplaceWait, Faults: faults, Pools: p.provider, Problems: p.problems,
	}); err != nil {
		return nil, err
	}
	p.market = newKeeper(config, memory, p.provider, p.prices, events)
	p.ledger = newLedger(config, p, reclaims.cluster, kube.Recorder, events)
	expander, err := newExpander(config, p.provider, kube, events)
	if err != nil {
		return nil, err
	}
	if p.explainer, err = newExplainer(config, p); err != nil {
		return nil, err
	}
	p.core, err = buildCore(config, p, kube, p.pods, expander, events, snapshotter)
	return p, err
}

// faultSettings returns which Nodes are faulty. The error is that of a condition, which Options.Validate refuses.
func faultSettings(faults options.FaultOptions) (fault.Settings, error) {
	conditions, err := fault.ParseConditions(faults.Conditions)
	return fault.Settings{Conditions: conditions, MaxNodes: &faults.MaxNodes}, err
}

// reclaimState is what the sources of notices write, and what the provider and the processors read.
type reclaimState struct {
	cluster  *cluster.Cluster
	notices  *notice.Store
	removals *notice.Removals
}

func newReclaimState(config *Config, factory informers.SharedInformerFactory, jobs *jobs.Registry) (*reclaimState, error) {
	view, err := cluster.New(factory, config.Region, jobs)
	if err != nil {
		return nil, err
	}
	notices, err := notice.NewStore(notice.Config{
		Cluster: view, Clock: config.Clock, Period: config.ReclaimNoticePeriod, Doubt: notice.DoubtFor(config.ReclaimPollInterval),
		MaxUnconfirmed: &config.ReclaimMaxUnconfirmed,
	})
	return &reclaimState{cluster: view, notices: notices, removals: notice.NewRemovals(view)}, err
}
