package processors

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// gangBudget bounds the time that one loop spends on gangs that fit nowhere. The others come first in the next loop.
const gangBudget = 5 * time.Second

// GangOrchestrator buys for one gang at a time, with core's all-or-nothing, which reaches the provider as
// AtomicIncreaseSize; for all other pods that ask for GPUs together, as core would; and for all pods that do not, for which
// [GPUReserve] keeps it off nodes with GPUs. All or nothing is meant of the pods that the gang has yet to place: those that
// fit existing nodes were filtered out before. A gang must fit one offering.
//
// Within one loop it tries one after the other until something is bought, which ends the loop, as it does in core. Who
// was tried longest ago comes first, so that neither a gang that fits nowhere nor one that always fits starves others.
type GangOrchestrator struct {
	inner scaleup.Orchestrator
	gangs *Gangs
	clock clock.PassiveClock

	autoscaling *cacontext.AutoscalingContext
	// reserve is nil where none is among the processors.
	reserve *GPUReserve
	// lastTried orders the units by when their turn was; turn numbers the attempts.
	lastTried map[string]int
	turn      int
}

var _ scaleup.Orchestrator = (*GangOrchestrator)(nil)

// NewGangOrchestrator wraps core's orchestrator, or the one that adds ProvisioningRequests to it.
func NewGangOrchestrator(inner scaleup.Orchestrator, gangs *Gangs, clk clock.PassiveClock) *GangOrchestrator {
	return &GangOrchestrator{inner: inner, gangs: gangs, clock: clk, lastTried: map[string]int{}}
}

// Initialize hands core's parts on to the wrapped orchestrator.
func (o *GangOrchestrator) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	o.autoscaling = autoscaling
	if processors != nil {
		o.reserve, _ = processors.NodeGroupListProcessor.(*GPUReserve)
	}
	o.inner.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// ScaleUpToNodeGroupMinSize is left to the wrapped orchestrator.
func (o *GangOrchestrator) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return o.inner.ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// scaleUp is one call of the wrapped orchestrator.
type scaleUp func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError)

// ScaleUp tries the units of the pods until something is bought. The status it returns speaks for all pods: of an attempt
// that failed to find an option, the reasons; of those that had no turn, that they wait.
func (o *GangOrchestrator) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	call := func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
		return o.inner.ScaleUp(pods, nodes, daemonSets, nodeInfos, allOrNothing)
	}
	if allOrNothing {
		return call(unschedulable, true)
	}

	began := o.clock.Now()
	units, short := o.units(unschedulable)
	result := &status.ScaleUpStatus{Result: status.ScaleUpNotTried, PodsAwaitEvaluation: podsOf(short)}
	for i, u := range units {
		o.turn++
		o.lastTried[u.name] = o.turn
		attempt, err := o.try(u, call)
		if err != nil || attempt.Result == status.ScaleUpSuccessful {
			attempt.PodsRemainUnschedulable = append(attempt.PodsRemainUnschedulable, result.PodsRemainUnschedulable...)
			attempt.PodsAwaitEvaluation = slices.Concat(attempt.PodsAwaitEvaluation, result.PodsAwaitEvaluation, podsOf(units[i+1:]))
			return attempt, err
		}
		merge(result, attempt)
		if o.clock.Since(began) > gangBudget {
			klog.Warningf("No option found for %d gangs in %v, leaving %d for the next loop", i+1, gangBudget, len(units)-i-1)
			result.PodsAwaitEvaluation = append(result.PodsAwaitEvaluation, podsOf(units[i+1:])...)
			break
		}
	}
	return result, nil
}

// try buys for one unit.
func (o *GangOrchestrator) try(u unit, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	if u.name == gpuUnit {
		return call(u.pods, false)
	}
	// The orchestrator of ProvisioningRequests flips this at every call, to alternate between them and other pods.
	mode := o.autoscaling.ProvisioningRequestScaleUpMode
	defer func() { o.autoscaling.ProvisioningRequestScaleUpMode = mode }()
	var attempt *status.ScaleUpStatus
	var err errors.AutoscalerError
	if u.isGang() {
		attempt, err = tryGang(u, call)
	} else {
		attempt, err = call(u.pods, false)
	}
	if !u.gpu && attempt != nil && o.reserve != nil {
		o.reserve.explain(attempt, o.autoscaling.CloudProvider.NodeGroups())
	}
	return attempt, err
}

// tryGang buys for all pods of a gang, or for its minimum where there is no room for all.
func tryGang(gang unit, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	attempt, err := call(gang.pods, true)
	if err == nil && attempt.Result == status.ScaleUpNoOptionsAvailable && gang.minimum < len(gang.pods) {
		klog.V(1).Infof("Gang %s fits nowhere with %d pods, trying its minimum of %d", gang.name, len(gang.pods), gang.minimum)
		attempt, err = call(gang.pods[:gang.minimum], true)
		if attempt != nil {
			attempt.PodsAwaitEvaluation = append(attempt.PodsAwaitEvaluation, gang.pods[gang.minimum:]...)
		}
	}
	switch {
	case err != nil:
		gangAttempts.WithLabelValues("error").Inc()
	case attempt.Result == status.ScaleUpSuccessful:
		gangAttempts.WithLabelValues("bought").Inc()
	default:
		gangAttempts.WithLabelValues("no_options").Inc()
	}
	return attempt, err
}

// merge adds an attempt that bought nothing. That there was no option says more than that nothing was tried.
func merge(result, attempt *status.ScaleUpStatus) {
	if result.Result != status.ScaleUpNoOptionsAvailable {
		result.Result = attempt.Result
	}
	result.PodsRemainUnschedulable = append(result.PodsRemainUnschedulable, attempt.PodsRemainUnschedulable...)
	result.PodsAwaitEvaluation = append(result.PodsAwaitEvaluation, attempt.PodsAwaitEvaluation...)
	if len(result.ConsideredNodeGroups) == 0 {
		result.ConsideredNodeGroups = attempt.ConsideredNodeGroups
	}
}
