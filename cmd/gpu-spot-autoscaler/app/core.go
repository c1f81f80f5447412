package app

import (
	"fmt"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/expander/factory"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/autoscaler/cluster-autoscaler/observers/loopstart"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodes"
	"k8s.io/autoscaler/cluster-autoscaler/processors/podinjection"
	podinjectionbackoff "k8s.io/autoscaler/cluster-autoscaler/processors/podinjection/backoff"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/predicate"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	simulatoroptions "k8s.io/autoscaler/cluster-autoscaler/simulator/options"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/moves"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors/customresources"
	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/processors/gangplan"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/scaledown"
	ourscaleup "gpu-spot-autoscaler/cloudprovider/processors/scaleup"
	"gpu-spot-autoscaler/cloudprovider/processors/simulation"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/processors/templates"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// podFlow is the parts that a pending pod passes on its way to a purchase.
type podFlow struct {
	deferral     *podlist.Deferral
	reclaiming   *podlist.ReclaimingPods
	added        *podlist.AddedPods
	search       *ourscaleup.Search
	orchestrator scaleup.Orchestrator
	deadlines    *spotfirst.Deadlines
	floors       *spotfirst.Floors
	idle         *spotfirst.Idle
	// injectedPods hides the pods of --enable-proactive-scaleup from Events. It is nil unless that is enabled.
	injectedPods status.ScaleUpStatusProcessor
	// skipped and judgements are why the last loop bought nothing for pods.
	skipped    *reasons.Skipped
	judgements *explain.Judgements
}

// replacementReady returns what tells drains when replacements are ready, nil if they do not wait for that.
func (f *podFlow) replacementReady(config *Config) func(node string) bool {
	if config.ReclaimReplaceUntil == options.ReplacementBought {
		return nil
	}
	return f.reclaiming.AllReady
}

// readyFor is how old a loop may be that has found a place that is ready.
const readyFor = 30 * time.Second

// movesReady returns whether there are ready places for the pods of a Node whose jobs move.
func (f *podFlow) movesReady(node string) bool { return f.reclaiming.AllReadyWithin(node, readyFor) }

// hasRun returns whether the pod stands for one that has run already.
func (f *podFlow) hasRun(pod *apiv1.Pod) bool { return f.added.Has(pod) || podlist.IsStandIn(pod) }

// groupOf returns the gang of the pod, or else its job.
func (f *podFlow) groupOf(pod *apiv1.Pod, jobs podJobs) string {
	if gang := f.deferral.GangOf(pod); gang != "" || jobs.of == nil {
		return gang
	}
	return jobs.of.Member(f.deferral.StandsFor(pod)).Ref.String()
}

// jobOf returns the job of the pod, also of one that does not exist, or else its gang.
func (f *podFlow) jobOf(pod *apiv1.Pod, all podJobs) string {
	if job := f.deferral.SupervisedJobOf(pod); job != "" && !moves.IsRef(job) {
		return job
	}
	if all.of != nil {
		if member := all.of.Member(f.deferral.StandsFor(pod)); member.System != jobs.SystemPod {
			return member.Ref.String()
		}
	}
	return f.groupOf(pod, all)
}

// podJobs know the jobs of pods. Each of them may be nil.
type podJobs struct {
	supervision podlist.Supervision
	natives     podlist.NativeGangs
	of          *jobs.Registry
	moves       *moves.Moves
	progress    spotfirst.Progress
	// hasMaxWait is Supervisor.HasMaxWait.
	hasMaxWait func(pod *apiv1.Pod, held string) bool
}

// newPodFlow constructs the parts. The provisioning may be nil.
func newPodFlow(config *Config, provisioning *provisioning, provider *ess.Provider, desk *deadline.Desk, arrivals *podlist.Arrivals, jobs podJobs) *podFlow {
	flow := &podFlow{added: &podlist.AddedPods{}, skipped: &reasons.Skipped{}, judgements: explain.NewJudgements(config.Clock)}
	places := podlist.NewPlaces()
	flow.deadlines = spotfirst.NewDeadlines(provider, desk, config.Clock)
	flow.floors = spotfirst.NewFloors(func(pod *apiv1.Pod) string { return flow.groupOf(pod, jobs) }, podlist.IsStandIn)
	flow.idle = spotfirst.NewIdle(func(pod *apiv1.Pod) string { return flow.jobOf(pod, jobs) }, func(pod *apiv1.Pod) bool {
		return jobs.hasMaxWait != nil && jobs.hasMaxWait(flow.deferral.StandsFor(pod), flow.deferral.SupervisedJobOf(pod))
	})
	policy := spotfirst.NewPolicy(spotfirst.Config{
		Offerings: provider, Restart: config.Terms.Restart, Clock: config.Clock, Deadlines: flow.deadlines, Floors: flow.floors,
		Progress: jobs.progress, Idle: flow.idle, HasRun: flow.hasRun,
	})
	chain := podlist.NewDefault(places, policy, flow.floors)
	var inner scaleup.Orchestrator = orchestrator.New()
	if provisioning != nil {
		provisioning.extend(chain)
		inner = provisioning.orchestrator
	}
	if config.Autoscaling.ProactiveScaleupEnabled {
		registry := podinjectionbackoff.NewFakePodControllerRegistry()
		chain = pods.NewCombinedPodListProcessor([]pods.PodListProcessor{
			podinjection.NewPodInjectionPodListProcessor(registry), chain,
			podinjection.NewEnforceInjectedPodsLimitProcessor(config.Autoscaling.PodInjectionLimit),
		})
		flow.injectedPods = podinjection.NewFakePodsScaleUpStatusProcessor(registry)
	}
	var destinations podlist.Moves
	if jobs.moves != nil {
		destinations = jobs.moves
	}
	flow.reclaiming = podlist.NewReclaimingPods(chain, provider.IsReclaiming, flow.added, config.Clock, destinations)
	flow.deferral = podlist.NewDeferral(podlist.Config{
		Inner: flow.idle.After(flow.floors.After(flow.reclaiming)), Arrivals: arrivals, Supervision: jobs.supervision, Natives: jobs.natives, Clock: config.Clock, SettleWindow: config.SettleWindow,
		Skipped: flow.skipped, ClaimsSimulated: config.Autoscaling.DynamicResourceAllocationEnabled,
	})
	allows := config.Submitted.Allows(policy.Allows)
	flow.search = ourscaleup.NewSearch(inner, searchConfig(config, provider, allows, flow.deferral))
	flow.orchestrator = ourscaleup.NewGangs(spotfirst.NewOrchestrator(flow.search, policy), ourscaleup.GangsConfig{
		Members: flow.deferral, Places: places, Clock: config.Clock, Planner: gangplan.New(provider, allows, config.Clock), Purchases: provider.Purchases(),
		Apart: policy.Apart, AllowSpot: policy.AllowSpot, Only: flow.search.Only, Skipped: flow.skipped,
	})
	if config.Autoscaling.EnforceNodeGroupMinSize {
		flow.orchestrator = ourscaleup.NewPoolMinimums(flow.orchestrator, provider, config.Clock)
	}
	return flow
}

// searchConfig evaluates the offerings by price only if the first of the expanders is least-price. Any other expander chooses by
// something else, and needs all offerings.
func searchConfig(config *Config, provider *ess.Provider, allows func(string, []*apiv1.Pod) bool, deferral *podlist.Deferral) ourscaleup.SearchConfig {
	first, _, _ := strings.Cut(config.Autoscaling.ExpanderNames, ",")
	return ourscaleup.SearchConfig{
		Offerings: provider, ByPrice: first == pricing.LeastPriceName, MaxBinpackingTime: config.Autoscaling.MaxBinpackingTime, Clock: config.Clock,
		Allows: allows, Reopen: deferral.Reopen,
	}
}

// buildCore returns Cluster Autoscaler's core with our processors.
func buildCore(config *Config, p *parts, kube *cacontext.AutoscalingKubeClients, flow *podFlow,
	best expander.Strategy, events problems.EventSink, snapshotter debuggingsnapshot.DebuggingSnapshotter) (core.Autoscaler, error) {
	autoscaling := config.Autoscaling
	handle, err := framework.NewHandle(p.informers, autoscaling.SchedulerConfig, autoscaling.DynamicResourceAllocationEnabled)
	if err != nil {
		return nil, fmt.Errorf("simulate the scheduler: %w", err)
	}
	deletion, training := simulatoroptions.NewNodeDeleteOptions(autoscaling), scaledown.NewTrainingPods(p.jobs)
	opts := core.AutoscalerOptions{
		AutoscalingOptions:     autoscaling,
		KubeClient:             config.Kube,
		InformerFactory:        p.informers,
		AutoscalingKubeClients: kube,
		CloudProvider:          p.provider,
		FrameworkHandle:        handle,
		ClusterSnapshot: predicate.NewPredicateSnapshot(simulation.NewStore(autoscaling.ClusterSnapshotParallelism),
			handle, autoscaling.DynamicResourceAllocationEnabled),
		ExpanderStrategy:     flow.search.Expander(best),
		DebuggingSnapshotter: snapshotter,
		ScaleUpOrchestrator:  flow.orchestrator,
		DeleteOptions:        deletion,
		DrainabilityRules:    append(rules.Default(deletion), training),
	}
	opts.Processors = newProcessors(config, p.provider, flow, events)
	candidates := scaledown.NewCandidates(opts.ClusterSnapshot, p.provider, training, deletion, opts.DrainabilityRules, config.Clock)
	opts.Processors.ScaleDownNodeProcessor = candidates
	opts.Processors.ScaleDownCandidatesNotifier.Register(candidates)
	if p.provisioning != nil {
		opts.LoopStartNotifier = loopstart.NewObserversList([]loopstart.Observer{p.provisioning.processor})
	}

	metrics.UpdateCPULimitsCores(autoscaling.MinCoresTotal, autoscaling.MaxCoresTotal)
	metrics.UpdateMemoryLimitsBytes(autoscaling.MinMemoryTotal, autoscaling.MaxMemoryTotal)
	metrics.InitMetrics()

	autoscaler, aErr := core.NewAutoscaler(opts, p.informers)
	if aErr != nil {
		return nil, fmt.Errorf("build cluster autoscaler: %w", aErr)
	}
	return autoscaler, nil
}

// newProcessors returns core's processors, with ours in their places. The processor of --scale-down-delay-type-local is left out:
// the cooldown belongs to a pool, and PoolLimits keeps it.
func newProcessors(config *Config, provider *ess.Provider, flow *podFlow, events problems.EventSink) *caprocessors.AutoscalingProcessors {
	all := caprocessors.DefaultProcessors(config.Autoscaling)
	all.CustomResourcesProcessor = customresources.NewReclaimingNodes(
		provider, customresources.NewGPUReadiness(provider, all.CustomResourcesProcessor), flow.deferral.BeginLoop)
	all.TemplateNodeInfoProvider = templates.New(provider, events)
	all.PodListProcessor = flow.deferral
	all.ScaleUpEnforcer = ourscaleup.Enforcer{}
	all.NodeGroupListProcessor, all.BinpackingLimiter = flow.search, flow.search
	all.ScaleDownSetProcessor = scaledown.NewPoolLimits(
		provider, config.Autoscaling.ScaleDownDelayAfterAdd, config.Clock, nodes.NewAtomicResizeFilteringProcessor())
	all.ScaleUpStatusProcessor = explain.NewEvents(all.ScaleUpStatusProcessor, flow.search.Template, flow.judgements)
	if flow.injectedPods != nil {
		all.ScaleUpStatusProcessor = status.NewCombinedScaleUpStatusProcessor(
			[]status.ScaleUpStatusProcessor{flow.injectedPods, all.ScaleUpStatusProcessor})
	}
	all.ScaleUpStatusProcessor = podlist.NewStatusFilter(
		all.ScaleUpStatusProcessor, flow.added.Has, podlist.IsStandIn)
	return all
}

// newExplainer constructs the explainer, which simulates the scheduler beside core's loop.
func newExplainer(config *Config, p *parts) (*explain.Explainer, error) {
	autoscaling := config.Autoscaling
	handle, err := framework.NewHandle(p.informers, autoscaling.SchedulerConfig, autoscaling.DynamicResourceAllocationEnabled)
	if err != nil {
		return nil, fmt.Errorf("simulate the scheduler for explanations: %w", err)
	}
	return explain.New(explain.Config{
		Provider: p.provider, Skipped: p.pods.skipped, Judgements: p.pods.judgements, Problems: p.poolProblems, Currency: config.Cloud.Currency,
		Policy: spotfirst.NewPolicy(spotfirst.Config{
			Offerings: p.provider, Restart: config.Terms.Restart, Clock: config.Clock, Deadlines: p.pods.deadlines, Floors: p.pods.floors,
			Progress: p.progress, Idle: p.pods.idle,
		}),
		Pods: p.informers.Core().V1().Pods().Lister(), Nodes: p.informers.Core().V1().Nodes().Lister(), DaemonSets: p.informers.Apps().V1().DaemonSets().Lister(),
		Handle: handle, Taints: taints.NewTaintConfig(autoscaling), Parallelism: autoscaling.ClusterSnapshotParallelism,
		LeastPriority: autoscaling.ExpendablePodsPriorityCutoff, Clock: config.Clock,
	}), nil
}

// poolProblems returns the active problems because of which there may be nothing to buy.
func (p *parts) poolProblems() (found []*reasons.Reason) {
	for _, active := range p.problems.Report().Problems {
		if active.Source == problems.Pools || active.Source == problems.Refresh {
			found = append(found, reasons.New(reasons.PoolProblem, active.Fix, "%s", problems.Problem{Pool: active.Pool, Reason: active.Reason, Cause: active.Cause}.Line(active.Source)))
		}
	}
	return found
}

// newExpander returns the chain of expanders that --expander names, of Cluster Autoscaler's expanders and ours.
func newExpander(config *Config, provider cloudprovider.CloudProvider, kube *cacontext.AutoscalingKubeClients,
	events problems.EventSink) (expander.Strategy, error) {
	model, aErr := provider.Pricing()
	if aErr != nil {
		return nil, fmt.Errorf("prices: %w", aErr)
	}
	known := factory.NewFactory()
	known.RegisterDefaultExpanders(provider, kube, config.Kube, config.Autoscaling.ConfigNamespace,
		config.Autoscaling.GRPCExpanderCert, config.Autoscaling.GRPCExpanderURL)
	known.RegisterFilter(pricing.LeastPriceName, func() expander.Filter {
		return pricing.NewLeastPrice(model, config.Clock, explainTo(events))
	})
	strategy, err := known.Build(strings.Split(config.Autoscaling.ExpanderNames, ","))
	if err != nil {
		return nil, fmt.Errorf("--expander=%s: %w", config.Autoscaling.ExpanderNames, err)
	}
	return strategy, nil
}

// explainTo returns a function that records an Event and a log line with the reason why an offering was chosen.
func explainTo(events problems.EventSink) func(pricing.Decision) {
	return func(decision pricing.Decision) {
		reason := "no other can do it for less"
		if decision.RunnerUp != nil {
			reason = fmt.Sprintf("best of %d; next %s", decision.Alternatives+1, decision.RunnerUp)
		}
		klog.InfoS("Chose an offering", "offering", decision.Chosen, "reason", reason)
		events.Eventf(apiv1.EventTypeNormal, "SpotOfferingChosen", "%s (%s)", decision.Chosen, reason)
	}
}
