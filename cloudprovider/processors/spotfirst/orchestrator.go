package spotfirst

import (
	"slices"

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

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/attempts"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/turn"
)

// Orchestrator buys apart for pods that may get different instances, so that nobody gets an on-demand instance because somebody else may, or waits
// because somebody else does. It belongs to core's loop.
type Orchestrator struct {
	scaleup.Orchestrator
	policy      *Policy
	autoscaling *cacontext.AutoscalingContext
	// reported are the pods whose malformed annotations were reported.
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

// ScaleUp calls the inner orchestrator for the pods that may be bought for alike, one part after the other until something is bought. What had no
// turn then awaits evaluation. If there is nothing to buy on demand for pods whose deadline is close, spot instances are bought. For a gang the
// caller does that, after it has tried a plan. Pods of which all or none are bought for are one part.
func (o *Orchestrator) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	o.report(unschedulable)
	parts := o.parts(unschedulable, allOrNothing)
	// Each call is made in the same turn. The next one is what it is after the call for the first part, which has the pods of
	// ProvisioningRequests.
	ofRequests := o.autoscaling.ProvisioningRequestScaleUpMode
	restore := turn.Remember(o.autoscaling)
	after := restore
	defer func() { after() }()
	call := func(pods []*apiv1.Pod) (*status.ScaleUpStatus, errors.AutoscalerError) {
		restore()
		return o.Orchestrator.ScaleUp(pods, nodes, daemonSets, nodeInfos, allOrNothing)
	}
	var result *status.ScaleUpStatus
	for i, part := range parts {
		attempt, err := call(part)
		if i == 0 {
			after = turn.Remember(o.autoscaling)
		}
		wasForRequests := ofRequests && slices.ContainsFunc(part, processors.IsProvisioningRequest)
		if err == nil && attempt.Result == status.ScaleUpNoOptionsAvailable && !allOrNothing && !wasForRequests {
			o.policy.AllowSpot(part, func() { attempt, err = call(part) })
		}
		if err != nil {
			return attempt, err
		}
		result = attempts.Join(result, attempt)
		if attempt.Result == status.ScaleUpSuccessful {
			result.PodsAwaitEvaluation = append(result.PodsAwaitEvaluation, slices.Concat(parts[i+1:]...)...)
			break
		}
	}
	return result, nil
}

// parts returns what is bought for apart. Pods of ProvisioningRequests, whose orchestrator divides them, stay together with those that may be bought
// for first.
func (o *Orchestrator) parts(pods []*apiv1.Pod, allOrNothing bool) [][]*apiv1.Pod {
	if allOrNothing {
		return [][]*apiv1.Pod{pods}
	}
	var provisioning, ordinary []*apiv1.Pod
	for _, pod := range pods {
		if processors.IsProvisioningRequest(pod) {
			provisioning = append(provisioning, pod)
		} else {
			ordinary = append(ordinary, pod)
		}
	}
	parts := o.policy.split(o.autoscaling.CloudProvider.NodeGroups(), ordinary)
	switch {
	case len(parts) == 0:
		return [][]*apiv1.Pod{pods}
	case len(provisioning) > 0:
		parts[0] = append(provisioning, parts[0]...)
	}
	return parts
}

// mostReported bounds what is remembered of pods that are long gone.
const mostReported = 10_000

// report records an Event for each pod with an annotation that cannot be read, once.
func (o *Orchestrator) report(pods []*apiv1.Pod) {
	for _, pod := range pods {
		_, err := settingsOf(pod)
		if err == nil || o.reported.Has(pod.UID) || o.policy.config.HasRun(pod) {
			continue
		}
		if o.reported.Len() >= mostReported {
			o.reported = sets.New[types.UID]()
		}
		o.reported.Insert(pod.UID)
		malformedPods.Inc()
		o.autoscaling.Recorder.Event(pod, apiv1.EventTypeWarning, "SpotAnnotationMalformed", err.Error())
	}
}
