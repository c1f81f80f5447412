package spotfirst

import (
	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
)

// Orchestrator buys first for pods that have waited long enough for on-demand instances, and then for the others, so that nobody gets such an
// instance because somebody else may. It belongs to core's loop.
type Orchestrator struct {
	scaleup.Orchestrator
	policy      *Policy
	autoscaling *cacontext.AutoscalingContext
	// reported are the pods whose malformed wish was reported.
	reported sets.Set[types.UID]
}

// NewOrchestrator returns an orchestrator around inner, which has to leave out the node groups that the policy does not allow.
func NewOrchestrator(inner scaleup.Orchestrator, policy *Policy) *Orchestrator {
	return &Orchestrator{Orchestrator: inner, policy: policy, reported: sets.New[types.UID]()}
}

// Initialize initializes the inner orchestrator.
func (o *Orchestrator) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	o.autoscaling = autoscaling
	o.Orchestrator.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// ScaleUp calls the inner orchestrator for the pods that have waited, and, if there is nothing to buy for those, for the others. What had no
// turn awaits evaluation. Pods of which all or none are bought for wait together.
func (o *Orchestrator) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	o.report(unschedulable)
	call := func(pods []*apiv1.Pod) (*status.ScaleUpStatus, errors.AutoscalerError) {
		return o.Orchestrator.ScaleUp(pods, nodes, daemonSets, nodeInfos, allOrNothing)
	}
	if allOrNothing {
		return call(unschedulable)
	}
	waited, waiting := o.policy.split(o.autoscaling.CloudProvider.NodeGroups(), unschedulable)
	if len(waited) == 0 || len(waiting) == 0 {
		return call(unschedulable)
	}
	first, err := call(waited)
	if err != nil {
		return first, err
	}
	if first.Result == status.ScaleUpSuccessful {
		first.PodsAwaitEvaluation = append(first.PodsAwaitEvaluation, waiting...)
		return first, nil
	}
	second, err := call(waiting)
	if err != nil {
		return second, err
	}
	second.PodsRemainUnschedulable = append(second.PodsRemainUnschedulable, first.PodsRemainUnschedulable...)
	second.PodsAwaitEvaluation = append(second.PodsAwaitEvaluation, first.PodsAwaitEvaluation...)
	if second.Result == status.ScaleUpNotTried {
		second.Result = first.Result
	}
	return second, nil
}

// mostReported bounds what is remembered of pods that are long gone.
const mostReported = 10_000

// report records an Event for each pod whose wish cannot be read, once.
func (o *Orchestrator) report(pods []*apiv1.Pod) {
	for _, pod := range pods {
		_, _, err := wish(pod)
		if err == nil || o.reported.Has(pod.UID) {
			continue
		}
		if o.reported.Len() >= mostReported {
			o.reported = sets.New[types.UID]()
		}
		o.reported.Insert(pod.UID)
		malformedWishes.Inc()
		o.autoscaling.Recorder.Event(pod, apiv1.EventTypeWarning, "SpotOnDemandAfterMalformed", err.Error())
	}
}
