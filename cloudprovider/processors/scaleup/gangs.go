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

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/attempts"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/turn"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// maxTime limits the time that one loop spends on scale-ups. What had no turn comes first in the next loop, which knows what the
// cloud said to the purchases of this one.
const maxTime = 5 * time.Second

// gatherTime is for how long purchases of a loop are gathered before they are sent.
const gatherTime = time.Second

// Members knows which pods are bought for together.
type Members interface {
	// Missing returns the gang of a pod and how many of its pods have to be bought for at once. The gang is "" for a pod that
	// may be bought for alone.
	Missing(pod *apiv1.Pod) (gang string, count int)
	// AnyZone returns whether the gang of the pod may be bought in several zones.
	AnyZone(pod *apiv1.Pod) bool
}

// Places is told which pods nodes were bought for.
type Places interface {
	// Remember records that a node of the node group was bought for the pod.
	Remember(pod *apiv1.Pod, groupID string)
}

// GangsConfig configures Gangs. All fields are required.
type GangsConfig struct {
	Members Members
	Places  Places
	Clock   clock.PassiveClock
	// Planner plans for gangs that no single offering has room for.
	Planner Planner
	// Purchases are those of the loop, and of the parts of a plan.
	Purchases Purchases
	// Apart returns those of the pods for which only on-demand instances may be bought, and the others.
	Apart func(pods []*apiv1.Pod) (onDemand, others []*apiv1.Pod)
	// AllowSpot calls buy with spot instances allowed for those of the pods that may have none because their deadline is close. It does not
	// call it if there are no such pods.
	AllowSpot func(pods []*apiv1.Pod, buy func())
	// Only has the inner orchestrator evaluate one node group in what buy calls it for.
	Only func(groupID string, buy func())
	// Skipped is told for which gangs there is no plan. It may be nil.
	Skipped *reasons.Skipped
}

// Gangs buys for one gang at a time, for all other GPU pods together, and for all CPU pods together. For a gang it asks core for
// all or nothing, which reaches the provider as AtomicIncreaseSize. That refers to the pods that the gang has yet to place:
// those that fit existing nodes were filtered out before. All of them are placed on nodes of one offering if one has room for them,
// else on those of a plan.
//
// Each of them has its turn in the same loop, as far as the time allows; in core, a loop ends with the first purchase. The one
// whose last turn was the longest ago comes first, so neither a gang that fits nowhere nor one that always fits starves the others.
type Gangs struct {
	inner  scaleup.Orchestrator
	config GangsConfig

	autoscaling *cacontext.AutoscalingContext
	processors  *caprocessors.AutoscalingProcessors
	// lastTurn is the turn in which each batch was last tried, and turn the number of turns so far.
	lastTurn map[string]int
	turn     int
	// told is why there was no plan for a gang, as its pods were told.
	told map[string]string
}

var _ scaleup.Orchestrator = (*Gangs)(nil)

// NewGangs returns an orchestrator around the inner one, normally that of package spotfirst around a Search.
func NewGangs(inner scaleup.Orchestrator, config GangsConfig) *Gangs {
	return &Gangs{inner: inner, config: config, lastTurn: map[string]int{}, told: map[string]string{}}
}

// Initialize initializes the inner orchestrator.
func (g *Gangs) Initialize(autoscaling *cacontext.AutoscalingContext, all *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	g.autoscaling, g.processors = autoscaling, all
	g.config.Planner.Initialize(autoscaling, registry, estimators)
	g.inner.Initialize(autoscaling, all, registry, estimators, taintConfig)
}

// ScaleUpToNodeGroupMinSize calls the inner orchestrator.
func (g *Gangs) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return g.inner.ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// scaleUp calls the inner orchestrator.
type scaleUp func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError)

// ScaleUp buys for the batches of the pods, one after the other. The returned status is about the last purchase, and about all pods
// without one: those of an attempt without an option remain unschedulable, and those that had no turn await evaluation. Core's
// processors of the status, which write the Events of pods, get those of the other purchases from here.
func (g *Gangs) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	call := func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
		return g.inner.ScaleUp(pods, nodes, daemonSets, nodeInfos, allOrNothing)
	}
	if allOrNothing {
		return call(unschedulable, true)
	}
	batches, partial := g.batches(unschedulable)
	l := &loop{batches: batches, nodes: len(nodes), templates: nodeInfos, bought: newBoughtNodes(g.autoscaling.ClusterSnapshot, nodeInfos, g.config.Places),
		rest: &status.ScaleUpStatus{Result: status.ScaleUpNotTried, PodsAwaitEvaluation: podsOf(partial)}}
	var err errors.AutoscalerError
	g.config.Purchases.Gather(func(send func()) { err = g.buyForAll(l, call, send) })
	return l.status(), err
}

// buyForAll gives the batches their turns while there is time, and has sent what was gathered for long enough.
func (g *Gangs) buyForAll(l *loop, call scaleUp, send func()) errors.AutoscalerError {
	began := g.config.Clock.Now()
	gathered := began
	for len(l.batches) > 0 {
		now := g.config.Clock.Now()
		if spent := now.Sub(began); spent > maxTime {
			klog.InfoS("Leaving the other gangs for the next loop", "left", len(l.batches), "spent", spent)
			return nil
		}
		if now.Sub(gathered) > gatherTime {
			send()
			gathered = g.config.Clock.Now()
		}
		if more, err := g.buyForNext(l, call); err != nil || !more {
			return err
		}
	}
	return nil
}

// buyForNext gives the next batch its turn, and returns whether the loop may go on with another. An error is returned only if the
// loop has bought nothing: core would take it for the result of all. The batch meets it again in the next loop.
func (g *Gangs) buyForNext(l *loop, call scaleUp) (more bool, err errors.AutoscalerError) {
	batch := l.next()
	left, fits, placeErr := l.bought.place(batch)
	if placeErr != nil {
		klog.ErrorS(placeErr, "Buying nothing more in this loop", "gang", batch.name)
		l.await(batch.pods)
		return false, nil
	}
	if !fits || len(left) == 0 {
		l.await(batch.pods) // the next loop places them on the nodes that were bought
		return true, nil
	}
	l.await(without(batch.pods, left))
	batch.pods = left
	g.turn++
	g.lastTurn[batch.name] = g.turn
	attempt, err := g.try(l, batch, call)
	switch {
	case err != nil && l.last == nil:
		l.last = attempt
		return false, err
	case err != nil:
		klog.ErrorS(err, "Cannot scale up, buying nothing more in this loop", "gang", batch.name)
		g.report(attempt)
		l.await(batch.pods)
		return false, nil
	case attempt.Result != status.ScaleUpSuccessful:
		l.rest = attempts.Join(l.rest, attempt)
		return true, nil
	}
	if l.last != nil {
		g.report(l.last)
	}
	l.last = attempt
	if slices.ContainsFunc(batch.pods, processors.IsProvisioningRequest) {
		return false, nil // their orchestrator alternates between them and other pods by the loop
	}
	again := !batch.isGang() && len(attempt.PodsAwaitEvaluation) > 0
	if !again && len(l.batches) == 0 {
		return false, nil // to add a thousand nodes for nobody would take seconds
	}
	if err := l.bought.add(attempt); err != nil {
		klog.V(1).InfoS("Buying nothing more in this loop", "reason", err)
		return false, nil
	}
	if again {
		batch.pods, attempt.PodsAwaitEvaluation = attempt.PodsAwaitEvaluation, nil // they need another offering
		l.batches = append(l.batches, batch)
	}
	return true, nil
}

// report passes a status to core's processors, which core passes only the one that ScaleUp returns.
func (g *Gangs) report(attempt *status.ScaleUpStatus) {
	if g.processors != nil && g.processors.ScaleUpStatusProcessor != nil {
		g.processors.ScaleUpStatusProcessor.Process(g.autoscaling, attempt)
	}
}

// loop is the scale-up of one loop.
type loop struct {
	// batches are those that had no turn yet.
	batches []podBatch
	// nodes is how many nodes there are, templates those that each node group would bring.
	nodes     int
	templates map[string]*framework.NodeInfo
	bought    *boughtNodes
	// last is the last purchase, nil if there is none. rest is about the pods without one.
	last, rest *status.ScaleUpStatus
}

func (l *loop) next() podBatch {
	batch := l.batches[0]
	l.batches = l.batches[1:]
	return batch
}

func (l *loop) await(pods []*apiv1.Pod) {
	l.rest.PodsAwaitEvaluation = append(l.rest.PodsAwaitEvaluation, pods...)
}

// status returns the status of the whole scale-up.
func (l *loop) status() *status.ScaleUpStatus {
	l.await(podsOf(l.batches))
	return attempts.Join(l.last, l.rest)
}

// try buys for one batch.
func (g *Gangs) try(l *loop, batch podBatch, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	if batch.name == gpuPods {
		return call(batch.pods, false)
	}
	restore := turn.Remember(g.autoscaling)
	steady := func(pods []*apiv1.Pod, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
		defer restore()
		return call(pods, allOrNothing)
	}
	if batch.isGang() {
		return g.tryGang(l, batch, steady)
	}
	return steady(batch.pods, false)
}
