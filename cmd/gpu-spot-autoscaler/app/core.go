package app

import (
	"fmt"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/autoscaler/cluster-autoscaler/observers/loopstart"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodes"
	"k8s.io/autoscaler/cluster-autoscaler/processors/podinjection"
	podinjectionbackoff "k8s.io/autoscaler/cluster-autoscaler/processors/podinjection/backoff"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/predicate"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/store"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	simulatoroptions "k8s.io/autoscaler/cluster-autoscaler/simulator/options"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
)

// podFlow is the way of a pending pod to the orchestrator that buys for it.
type podFlow struct {
	trigger      *processors.Trigger
	hold         *processors.Hold
	evacuees     *processors.Evacuees
	orchestrator scaleup.Orchestrator
	// fakes keeps Events off pods that exist only to buy ahead of demand; nil unless that is enabled.
	fakes status.ScaleUpStatusProcessor
}

func newPodFlow(config *Config, provisioning *provisioning, doomed func(*apiv1.Node) bool) *podFlow {
	flow := &podFlow{}
	chain := processors.NewPodListProcessor()
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
		flow.fakes = podinjection.NewFakePodsScaleUpStatusProcessor(registry)
	}
	arrivals, gangs := processors.NewArrivals(config.Clock), &processors.Gangs{}
	flow.evacuees = processors.NewEvacuees(chain, doomed)
	flow.hold = processors.NewHold(flow.evacuees, arrivals, gangs, config.Clock, config.SettleWindow)
	flow.orchestrator = processors.NewGangOrchestrator(processors.NewStagedOrchestrator(inner), gangs, config.Clock)
	flow.trigger = processors.NewTrigger(processors.TriggerConfig{
		Clock: config.Clock, Interval: config.Autoscaling.ScanInterval, Arrivals: arrivals, Waker: flow.hold,
		BypassedSchedulers: config.Autoscaling.BypassedSchedulers,
	})
	return flow
}

// buildCore makes Cluster Autoscaler of its own parts and ours.
func buildCore(config *Config, p *parts, kube *cacontext.AutoscalingKubeClients, flow *podFlow,
	best expander.Strategy, events processors.EventSink, snapshotter debuggingsnapshot.DebuggingSnapshotter) (core.Autoscaler, error) {
	autoscaling := config.Autoscaling
	handle, err := framework.NewHandle(p.informers, autoscaling.SchedulerConfig, autoscaling.DynamicResourceAllocationEnabled)
	if err != nil {
		return nil, fmt.Errorf("simulate the scheduler: %w", err)
	}
	deletion, training := simulatoroptions.NewNodeDeleteOptions(autoscaling), processors.NewTrainingStays(p.jobs)
	scaleUps := flow.orchestrator
	if autoscaling.EnforceNodeGroupMinSize {
		scaleUps = processors.NewMinimumOrchestrator(scaleUps, p.provider, config.Clock)
	}
	opts := core.AutoscalerOptions{
		AutoscalingOptions:     autoscaling,
		KubeClient:             config.Kube,
		InformerFactory:        p.informers,
		AutoscalingKubeClients: kube,
		CloudProvider:          p.provider,
		FrameworkHandle:        handle,
		ClusterSnapshot: predicate.NewPredicateSnapshot(store.NewDeltaSnapshotStore(autoscaling.ClusterSnapshotParallelism),
			handle, autoscaling.DynamicResourceAllocationEnabled),
		ExpanderStrategy:     best,
		DebuggingSnapshotter: snapshotter,
		ScaleUpOrchestrator:  scaleUps,
		DeleteOptions:        deletion,
		DrainabilityRules:    append(rules.Default(deletion), training),
	}
	opts.Processors = newProcessors(config, p.provider, flow, events)
	candidates := processors.NewCandidates(opts.ClusterSnapshot, p.provider, training, deletion, opts.DrainabilityRules, config.Clock)
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

// newProcessors puts ours in the places of core's. Not listed: the processor of --scale-down-delay-type-local, since
// the cooldown is of a pool.
func newProcessors(config *Config, provider *ess.Provider, flow *podFlow, events processors.EventSink) *caprocessors.AutoscalingProcessors {
	all := caprocessors.DefaultProcessors(config.Autoscaling)
	all.CustomResourcesProcessor = processors.NewDyingNodes(
		provider, processors.NewGPUReadiness(provider, all.CustomResourcesProcessor), flow.hold.BeginLoop)
	all.TemplateNodeInfoProvider = processors.NewTemplates(provider, events)
	all.PodListProcessor = flow.hold
	all.ScaleUpEnforcer = processors.ScaleUpEnforcer{}
	if prefersCheapest(config.Autoscaling.ExpanderNames) {
		cheapest := processors.NewCheapestFirst(provider, config.Clock)
		all.NodeGroupListProcessor, all.BinpackingLimiter = cheapest, cheapest
	}
	all.NodeGroupListProcessor = processors.NewGPUReserve(provider, all.NodeGroupListProcessor)
	all.BinpackingLimiter = processors.NewTimeLimit(all.BinpackingLimiter, config.Autoscaling.MaxBinpackingTime, config.Clock)
	all.ScaleDownSetProcessor = processors.NewPoolLimits(pools{provider, config.Autoscaling.ScaleDownDelayAfterAdd}, config.Clock, nodes.NewAtomicResizeFilteringProcessor())
	if flow.fakes != nil {
		all.ScaleUpStatusProcessor = status.NewCombinedScaleUpStatusProcessor(
			[]status.ScaleUpStatusProcessor{flow.fakes, all.ScaleUpStatusProcessor})
	}
	all.ScaleUpStatusProcessor = processors.NewDiscreet(all.ScaleUpStatusProcessor, flow.evacuees.Injected, processors.Returning)
	return all
}

// prefersCheapest says whether the first of the expanders is least-price. Only then may offerings that cannot be cheaper be
// left out: any other expander goes by something else, and has to be offered all there are.
func prefersCheapest(expanders string) bool {
	first, _, _ := strings.Cut(expanders, ",")
	return first == pricing.LeastPriceName
}

// pools shows the provider's pools as scale-down wants to see them.
type pools struct {
	provider interface {
		PoolOf(*apiv1.Node) (ess.PoolStatus, bool)
	}
	// cooldown is of pools that have none of their own.
	cooldown time.Duration
}

func (p pools) PoolOf(node *apiv1.Node) (processors.Pool, bool) {
	status, ok := p.provider.PoolOf(node)
	return processors.Pool{
		ID: status.ID, Size: status.Size, MinSize: status.MinSize,
		Cooldown: ptr.Deref(status.Cooldown, p.cooldown), LastScaleUp: status.LastScaleUp,
	}, ok
}
