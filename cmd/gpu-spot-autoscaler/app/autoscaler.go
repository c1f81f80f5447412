package app

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/loop"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud/dryrun"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/gangs"
	"gpu-spot-autoscaler/cloudprovider/jobs/intervals"
	"gpu-spot-autoscaler/cloudprovider/jobs/moves"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/jobs/progress"
	"gpu-spot-autoscaler/cloudprovider/jobs/supervisor"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/trigger"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/jobsupervisor"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/overrides"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/trim"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/pricing/market"
)

const (
	// firstLists is how long the informers may take to list the objects of the cluster.
	firstLists = 2 * time.Minute
	// lastWrites bounds what is written on Nodes once the provider has ended.
	lastWrites = 5 * time.Second
	// firstRefreshRetry is how long to wait at start before the pools are read again.
	firstRefreshRetry = 5 * time.Second
	// firstPrices is how long the first loop waits for prices at most: buying without prices is better than not buying.
	firstPrices = 10 * time.Second
)

// parts are what runs while this process leads.
type parts struct {
	informers informers.SharedInformerFactory
	overrides *overrides.Overrides
	ack       *ackAutoscaler
	problems  *problems.Board
	events    *deploymentEvents
	// dryRun is nil unless this is a dry run.
	dryRun     *dryrun.Cloud
	status     *statusWriter
	prices     *pricing.Book
	ledger     *ledger.Ledger
	market     *market.Keeper
	stock      *market.Watch
	deadlines  *deadline.Desk
	jobs       *jobs.Registry
	gangs      *gangs.Gangs
	reclaimer  *reclaim.Controller
	supervisor *supervisor.Supervisor
	intervals  *intervals.Adviser
	progress   *progress.Progress
	provider   *ess.Provider
	// moves is nil in a dry run, and if the provider is served to another core, which cannot be asked to buy for pods that do not exist.
	moves *moves.Moves
	// The following are core and what belongs to it. They are nil if the provider is served to another core.
	core      core.Autoscaler
	trigger   *trigger.Trigger
	pods      *podFlow
	explainer *explain.Explainer
	// provisioning is nil unless ProvisioningRequests are enabled.
	provisioning *provisioning
}

// autoscale builds the parts and runs them until ctx ends or one of them fails. If ctx ended, it returns nil after the loop under
// way.
func autoscale(ctx context.Context, r *replica) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	p, err := buildFor(ctx, r)
	if err != nil {
		return err
	}
	r.health.StartMonitoring()
	r.readiness.Lead(p.problems)
	group.Go(func() error { p.status.run(ctx); return nil })
	group.Go(func() error {
		factories := []informers.SharedInformerFactory{p.informers, p.overrides.Informers, p.ack.informers}
		return whileListed(ctx, firstLists, factories, func(ctx context.Context) error {
			r.status.Lead(ctx, p)
			r.costs.Lead(ctx, p.ledger)
			p.explain(ctx, r.explanations)
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
	group.Go(func() error { p.stock.Run(ctx); return nil })
	group.Go(func() error { p.deadlines.Run(ctx); return nil })
	group.Go(func() error { p.progress.Run(ctx); return nil })
	group.Go(func() error { return unlessDone(ctx, p.jobs.Run(ctx)) })
	group.Go(func() error { return unlessDone(ctx, p.gangs.Run(ctx)) })
	group.Go(func() error { return unlessDone(ctx, p.reclaimer.Run(ctx)) })
	group.Go(func() error { return unlessDone(ctx, p.supervisor.Run(ctx)) })
	group.Go(func() error { p.advise(ctx); return nil })
	if p.moves != nil {
		group.Go(func() error { p.moves.Run(ctx); return nil })
	}
	group.Go(func() error {
		jobsupervisor.Run(ctx, p.informers.Core().V1().Pods().Lister(), p.problems)
		return nil
	})
	group.Go(func() error { return p.lead(ctx, r) })
	return group.Wait()
}

// lead runs core's loop, or serves the provider to another core, once the pools are known. It ends the provider in any case: other parts
// wait for their removals, which nothing else ends before their time.
func (p *parts) lead(ctx context.Context, r *replica) error {
	defer p.finish(ctx)
	if err := p.firstRefresh(ctx, r.health); err != nil {
		return unlessDone(ctx, err)
	}
	if r.config.Serve != nil {
		return unlessDone(ctx, p.serve(ctx, r.config, r.health))
	}
	return p.loop(ctx, r.health)
}

// buildFor constructs the parts of an autoscaler, or of one that is served to another core.
func buildFor(ctx context.Context, r *replica) (*parts, error) {
	if r.config.Serve != nil {
		return buildServed(ctx, r.config)
	}
	return build(ctx, r.config, r.snapshotter)
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
func (p *parts) loop(ctx context.Context, health *metrics.HealthCheck) error {
	p.awaitPrices(ctx)
	if ctx.Err() != nil {
		return nil // to start is to write to the cluster, which another process may lead by now
	}
	defer p.cleanUp(ctx)
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

// cleanUp ends core, and the provider, which core ends only if it writes a status ConfigMap.
func (p *parts) cleanUp(ctx context.Context) {
	p.core.ExitCleanUp()
	p.endProvider(ctx)
}

// endProvider ends removals under way, and waits for them. It may be called again.
func (p *parts) endProvider(ctx context.Context) {
	if err := p.provider.Cleanup(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot clean up the provider")
	}
}

// finish ends the provider, and has the removals that ESS has accepted until then written on their Nodes.
func (p *parts) finish(ctx context.Context) {
	p.endProvider(ctx)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites) // ctx has ended
	defer cancel()
	if err := p.reclaimer.Finish(bounded); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write on every node that its instance is being given back")
	}
}

// build constructs the parts. Nothing runs yet.
func build(ctx context.Context, config *Config, snapshotter debuggingsnapshot.DebuggingSnapshotter) (*parts, error) {
	arrivals := podlist.NewArrivals(config.Clock)
	trigger := trigger.New(trigger.Config{
		Clock: config.Clock, Interval: config.Autoscaling.ScanInterval, Arrivals: arrivals,
		BypassedSchedulers: config.Autoscaling.BypassedSchedulers,
	})
	p, s, err := newParts(ctx, config, trigger.Notify, trigger.NotifyGang)
	if err != nil {
		return nil, err
	}
	p.trigger = trigger
	if config.Autoscaling.ProvisioningRequestEnabled {
		if p.provisioning, err = newProvisioning(config); err != nil {
			return nil, err
		}
	}
	if _, err := p.informers.Core().V1().Pods().Informer().AddEventHandler(p.trigger.PodHandler()); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if config.DryRun == nil {
		p.moves = newMoves(config, p, s, trigger.NotifyGang)
	}
	p.pods = newPodFlow(config, p.provisioning, p.provider, p.deadlines, arrivals, podJobs{supervision{p.supervisor, p.moves}, p.gangs, p.jobs, p.moves, p.progress, p.supervisor.HasMaxWait})
	if err := p.addReclaimer(config, s, p.pods.reclaiming.AllPlaced, p.pods.replacementReady(config), p.pods.movesReady); err != nil {
		return nil, err
	}
	expander, err := newExpander(config, p.provider, s.kube, s.events)
	if err != nil {
		return nil, err
	}
	if p.explainer, err = newExplainer(config, p); err != nil {
		return nil, err
	}
	p.core, err = buildCore(config, p, s.kube, p.pods, expander, s.events, snapshotter)
	return p, err
}

// shared are what parts are constructed of.
type shared struct {
	kube     *cacontext.AutoscalingKubeClients
	events   *deploymentEvents
	reclaims *reclaimState
	// marks and drains are clients with budgets of their own.
	marks, drains kubernetes.Interface
	// wake asks for a loop.
	wake func()
	pods *podindex.Index
}

// newParts constructs what does not depend on whose core it is. wake asks for a loop at once, wakeForGang for one that looks for a gang.
func newParts(ctx context.Context, config *Config, wake, wakeForGang func()) (p *parts, s *shared, err error) {
	transform := trim.New()
	p = &parts{informers: informers.NewSharedInformerFactoryWithOptions(config.Kube, 0, informers.WithTransform(transform))}
	trim.WatchPods(p.informers, transform)
	s = &shared{wake: wake, kube: cacontext.NewAutoscalingKubeClients(config.Autoscaling, config.Kube, p.informers)}
	s.events = newDeploymentEvents(ctx, config.Kube, newDeploymentRecorder(ctx, config.Kube), config.Autoscaling.ConfigNamespace, config.DeploymentName)

	p.problems, p.events, p.dryRun = problems.NewBoard(s.events, config.Clock), s.events, config.DryRun
	p.status = &statusWriter{
		client: config.Kube, namespace: config.Autoscaling.ConfigNamespace, name: config.DeploymentName + options.StatusSuffix,
		identity: config.Identity, board: p.problems, clock: config.Clock,
	}
	if p.jobs, p.gangs, err = newJobs(config, s.kube.Recorder, wakeForGang); err != nil {
		return nil, nil, err
	}
	pods, err := podindex.New(p.informers.Core().V1().Pods().Informer(), p.jobs)
	if err != nil {
		return nil, nil, err
	}
	s.pods = pods
	if s.reclaims, err = newReclaimState(config, p.informers, pods, p.jobs); err != nil {
		return nil, nil, err
	}
	if s.marks, s.drains, err = reclaim.Clients(config.KubeConfig, config.ReclaimRateLimits); err != nil {
		return nil, nil, err
	}
	if p.overrides, err = overrides.New(config.Kube, config.Autoscaling.ConfigNamespace); err != nil {
		return nil, nil, err
	}
	p.ack = newACKAutoscaler(config.Kube, config.Autoscaling.ConfigNamespace)
	p.prices = pricing.NewBook(pricing.BookOptions{
		Source: config.Cloud, Interval: config.PriceRefreshInterval, MaxAge: config.PriceMaxAge, Clock: config.Clock,
	})
	memory := market.NewMemory()
	if p.provider, err = newProvider(ctx, config, p, s, memory); err != nil {
		return nil, nil, err
	}
	if p.supervisor, err = supervisor.New(supervisor.Config{
		Jobs: p.jobs, Queues: jobs.NewQueues(p.jobs), Pools: p.provider, Pods: pods, Client: s.drains, Informers: p.informers, Recorder: s.kube.Recorder, Clock: config.Clock, Wake: wakeForGang,
		MaxGrowth: jobs.Growth(config.MaxGrowth),
	}); err != nil {
		return nil, nil, err
	}
	p.intervals = newAdviser(config, p, memory, s.kube.Recorder)
	p.progress = progress.New(progress.Config{Jobs: jobs.NewNotes(p.jobs), Pods: pods, Clock: config.Clock, Restart: config.Terms.Restart})
	p.deadlines = deadline.NewDesk(deadline.Config{Memory: memory, Price: marketPrice(p.prices), Terms: config.Terms, Clock: config.Clock})
	p.market = newKeeper(config, memory, p.provider, p.prices, s.events)
	p.stock = newWatch(config, memory, p.provider, p.prices, s.events)
	p.ledger = newLedger(config, p, s.reclaims.cluster, s.kube.Recorder, s.events)
	return p, s, nil
}

func newProvider(ctx context.Context, config *Config, p *parts, s *shared, memory *market.Memory) (*ess.Provider, error) {
	return ess.New(ess.Config{
		Cloud: config.Cloud, Prices: p.prices, Events: s.events, Problems: p.problems, Clock: config.Clock,
		Owner: owner(ctx, config), OtherAutoscaler: p.ack.manages, ReportOthersFor: reportOthersFor * config.Autoscaling.ScanInterval,
		ClusterName: config.Autoscaling.ClusterName, Region: config.Region, NodeGroupSpecs: config.Autoscaling.NodeGroups,
		ResourceLimiter: cacontext.NewResourceLimiterFromAutoscalingOptions(config.Autoscaling),
		Reclaiming:      s.reclaims.notices.Reclaiming, Occupied: s.reclaims.cluster.Occupied, Removed: s.reclaims.removals.Note,
		Lost:      s.reclaims.notices.Lost,
		Overrides: p.overrides.Of, Wake: s.wake, Market: memory, Terms: config.Terms, Shortages: config.Shortages,
		MaxProvisionTime: config.Autoscaling.NodeGroupDefaults.MaxNodeProvisionTime,
	})
}
