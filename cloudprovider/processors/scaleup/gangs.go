package scaleup

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

// maxTimeWithoutOption limits the time that one loop spends on gangs that fit nowhere. The other gangs come first in the next
// loop.
const maxTimeWithoutOption = 5 * time.Second

// Members knows which pods are bought for together.
type Members interface {
	// Missing returns the gang of a pod and how many of its pods have to be bought for at once. The gang is "" for a pod that
	// may be bought for alone.
	Missing(pod *apiv1.Pod) (gang string, count int)
}

// Gangs buys for one gang at a time, for all other GPU pods together, and for all CPU pods together. For a gang it asks core for
// all or nothing, which reaches the provider as AtomicIncreaseSize. That refers to the pods that the gang has yet to place:
// those that fit existing nodes were filtered out before. All of them are placed on nodes of one offering.
//
// A loop tries one after the other until something is bought, which ends the loop, as it does in core. The one whose last turn
// was the longest ago comes first, so neither a gang that fits nowhere nor one that always fits starves the others.
type Gangs struct {
	inner   scaleup.Orchestrator
	members Members
	clock   clock.PassiveClock

	autoscaling *cacontext.AutoscalingContext
	// lastTurn is the turn in which each unit was last tried, and turn the number of turns so far.
	lastTurn map[string]int
	turn     int
}

var _ scaleup.Orchestrator = (*Gangs)(nil)

// NewGangs returns an orchestrator around the inner one, normally a Search.
func NewGangs(inner scaleup.Orchestrator, members Members, clk clock.PassiveClock) *Gangs {
	return &Gangs{inner: inner, members: members, clock: clk, lastTurn: map[string]int{}}
}

// Initialize initializes the inner orchestrator.
func (g *Gangs) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	g.autoscaling = autoscaling
	g.inner.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// ScaleUpToNodeGroupMinSize calls the inner orchestrator.
func (g *Gangs) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return g.inner.ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// scaleUp calls the inner orchestrator.
type scaleUp func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError)

// ScaleUp tries the units of the pods until something is bought. The status is about all pods: those of an attempt without an
// option remain unschedulable, and those that had no turn await evaluation.
func (g *Gangs) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	call := func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
		return g.inner.ScaleUp(pods, nodes, daemonSets, nodeInfos, allOrNothing)
	}
	if allOrNothing {
		return call(unschedulable, true)
	}

	began := g.clock.Now()
	units, partial := g.units(unschedulable)
	result := &status.ScaleUpStatus{Result: status.ScaleUpNotTried, PodsAwaitEvaluation: podsOf(partial)}
	for i, u := range units {
		g.turn++
		g.lastTurn[u.name] = g.turn
		attempt, err := g.try(u, call)
		if err != nil || attempt.Result == status.ScaleUpSuccessful {
			attempt.PodsRemainUnschedulable = append(attempt.PodsRemainUnschedulable, result.PodsRemainUnschedulable...)
			attempt.PodsAwaitEvaluation = slices.Concat(attempt.PodsAwaitEvaluation, result.PodsAwaitEvaluation, podsOf(units[i+1:]))
			return attempt, err
		}
		merge(result, attempt)
		if spent := g.clock.Since(began); spent > maxTimeWithoutOption {
			klog.InfoS("No option found so far, leaving the other gangs for the next loop", "tried", i+1, "left", len(units)-i-1, "spent", spent)
			result.PodsAwaitEvaluation = append(result.PodsAwaitEvaluation, podsOf(units[i+1:])...)
			break
		}
	}
	return result, nil
}

// try buys for one unit.
func (g *Gangs) try(u unit, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	if u.name == gpuPods {
		return call(u.pods, false)
	}
	// The orchestrator of ProvisioningRequests flips the mode in each call, to alternate between them and other pods.
	mode := g.autoscaling.ProvisioningRequestScaleUpMode
	defer func() { g.autoscaling.ProvisioningRequestScaleUpMode = mode }()
	if u.isGang() {
		return tryGang(u, call)
	}
	return call(u.pods, false)
}

// tryGang buys for all pods of a gang, or for its minimum if there is no option for all.
func tryGang(gang unit, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	attempt, err := call(gang.pods, true)
	if err == nil && attempt.Result == status.ScaleUpNoOptionsAvailable && gang.minimum < len(gang.pods) {
		klog.V(1).InfoS("No option for all pods of a gang, trying its minimum", "gang", gang.name, "pods", len(gang.pods), "minimum", gang.minimum)
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

// merge adds an attempt that bought nothing. The result says that there was no option if any attempt does, and otherwise that
// nothing was tried.
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
