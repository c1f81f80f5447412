package processors

import (
	"maps"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
)

const (
	// firstStage is how many offerings are looked at first, nextStages how many times as many in each further stage.
	firstStage = 16
	nextStages = 4
)

// StagedOrchestrator shows core the most promising offerings first, and more of them only as long as there is nothing
// to buy among those it has seen. Core begins with trying a pod of each kind on every offering that it is shown, and a
// pod without a controller is a kind of its own: a thousand pods and a thousand offerings make a million simulations of
// the scheduler, all but some of them for offerings that cannot win.
//
// The offerings of a stage are those that CheapestFirst ranks best, so what they are chosen before is dearer, or takes
// fewer of the pods. Where CheapestFirst does not rank, there is one stage.
type StagedOrchestrator struct {
	inner       scaleup.Orchestrator
	ranking     *CheapestFirst
	limit       *TimeLimit
	autoscaling *cacontext.AutoscalingContext
}

var _ scaleup.Orchestrator = (*StagedOrchestrator)(nil)

// NewStagedOrchestrator wraps core's orchestrator, or the one that adds ProvisioningRequests to it.
func NewStagedOrchestrator(inner scaleup.Orchestrator) *StagedOrchestrator {
	return &StagedOrchestrator{inner: inner}
}

// Initialize hands core's parts on to the wrapped orchestrator.
func (o *StagedOrchestrator) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	o.autoscaling = autoscaling
	o.ranking = rankingOf(processors.NodeGroupListProcessor)
	o.limit, _ = processors.BinpackingLimiter.(*TimeLimit)
	o.inner.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// rankingOf is nil where the processor does not rank.
func rankingOf(processor nodegroups.NodeGroupListProcessor) *CheapestFirst {
	if reserve, ok := processor.(*GPUReserve); ok {
		processor = reserve.next
	}
	ranking, _ := processor.(*CheapestFirst)
	return ranking
}

// ScaleUpToNodeGroupMinSize is left to the wrapped orchestrator.
func (o *StagedOrchestrator) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return o.inner.ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// ScaleUp calls the wrapped orchestrator stage by stage, until there is an option or an error.
func (o *StagedOrchestrator) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	if o.limit != nil {
		o.limit.begin()
	}
	if o.ranking == nil {
		return o.inner.ScaleUp(unschedulable, nodes, daemonSets, nodeInfos, allOrNothing)
	}
	defer o.ranking.show(0, math.MaxInt)
	// The orchestrator of ProvisioningRequests flips this at every call, to alternate between them and other pods.
	mode := o.autoscaling.ProvisioningRequestScaleUpMode
	var rejected *status.ScaleUpStatus
	for from, to := 0, firstStage; ; from, to = to, to*nextStages {
		o.ranking.show(from, to)
		o.autoscaling.ProvisioningRequestScaleUpMode = mode
		attempt, err := o.inner.ScaleUp(unschedulable, nodes, daemonSets, nodeInfos, allOrNothing)
		more := o.ranking.ranked > to
		switch {
		case err != nil:
			return attempt, err
		case attempt.Result != status.ScaleUpNoOptionsAvailable:
			if more { // pods that were left out may do with an offering that was not shown
				attempt.PodsAwaitEvaluation = append(attempt.PodsAwaitEvaluation, podsRemaining(attempt)...)
				attempt.PodsRemainUnschedulable = nil
			}
			return attempt, nil
		}
		rejected = joinStages(rejected, attempt)
		if !more {
			return rejected, nil
		}
	}
}

func podsRemaining(attempt *status.ScaleUpStatus) []*apiv1.Pod {
	var pods []*apiv1.Pod
	for _, left := range attempt.PodsRemainUnschedulable {
		pods = append(pods, left.Pod)
	}
	return pods
}

// joinStages adds the reasons why a further stage had no option.
func joinStages(before, stage *status.ScaleUpStatus) *status.ScaleUpStatus {
	if before == nil {
		return stage
	}
	reasons := make(map[types.UID]status.NoScaleUpInfo, len(stage.PodsRemainUnschedulable))
	for _, left := range stage.PodsRemainUnschedulable {
		reasons[left.Pod.UID] = left
	}
	joined := before.PodsRemainUnschedulable[:0]
	for _, left := range before.PodsRemainUnschedulable {
		more, remains := reasons[left.Pod.UID]
		if !remains {
			continue // there is an offering that suits it, but nothing can be bought of that now
		}
		left.RejectedNodeGroups = joinReasons(left.RejectedNodeGroups, more.RejectedNodeGroups)
		left.SkippedNodeGroups = joinReasons(left.SkippedNodeGroups, more.SkippedNodeGroups)
		joined = append(joined, left)
	}
	before.PodsRemainUnschedulable = joined
	before.ConsideredNodeGroups = append(before.ConsideredNodeGroups, stage.ConsideredNodeGroups...)
	return before
}

// joinReasons adds reasons to those of other offerings. Pods that are alike share both maps, so it may be done already.
func joinReasons(reasons, more map[string]status.Reasons) map[string]status.Reasons {
	for id := range more {
		if _, done := reasons[id]; done {
			return reasons
		}
		break
	}
	if reasons == nil {
		return more
	}
	maps.Copy(reasons, more)
	return reasons
}
