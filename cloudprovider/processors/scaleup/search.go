package scaleup

import (
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/binpacking"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/turn"
)

// Offerings knows the offerings, by the ids of their node groups.
type Offerings interface {
	// NodePrice returns the price of a node per instance-hour for pods whose time is worth that much, nil if they do not say. It returns false
	// while the price is not known.
	NodePrice(groupID string, valueOfTime *float64) (float64, bool)
	// BuysForCPUPods returns whether nodes of the offering may be bought for pods that request no GPU: they have no GPU, or the
	// operator has allowed it.
	BuysForCPUPods(groupID string) bool
	// Undelivered returns how many instances have been bought of the offering's pool and are not delivered yet.
	Undelivered(groupID string) int
}

// SearchConfig configures a Search. Offerings and Clock are required.
type SearchConfig struct {
	Offerings Offerings
	// ByPrice evaluates the offerings in the order of their price, and stops when no other can be cheaper. That is right only if
	// the first expander is least-price: any other chooses by something else, and needs all options.
	ByPrice bool
	// MaxBinpackingTime ends the evaluation of one scale-up, all stages together, with the options that there are by then. If there
	// is none, the evaluation goes on until there is one: a dearer offering is better than none for ever. The
	// limiter of core that Search replaces (TimeLimiter in processors/binpacking/time_limiter.go) only logs that the time is over:
	// its StopBinpacking never returns true.
	MaxBinpackingTime time.Duration
	Clock             clock.PassiveClock
	// Allows returns whether the node group may be bought for these pods yet. It may be nil.
	Allows func(groupID string, pods []*apiv1.Pod) bool
	// Reopen is called before an option for pods that may be bought for one by one is chosen. It defers those of which more have
	// arrived during the evaluation, and returns the others. It may be nil.
	Reopen func(pods []*apiv1.Pod) []*apiv1.Pod
}

const (
	// firstStage is the number of offerings in the first stage. Together with each further stage there are stageFactor times as
	// many as before.
	firstStage  = 16
	stageFactor = 4
)

// Search decides which offerings core evaluates in a scale-up, in which order, and when it has seen enough.
//
// Offerings with GPUs are left out of a scale-up for pods that request none. Such pods still fill what GPU pods leave of the
// nodes that were bought for those: core places pods on existing and upcoming nodes before it scales up.
//
// With ByPrice, a scale-up over a thousand offerings is as fast as one over a few, and no dearer:
//
//   - order: offerings are ranked by the least that all pods could cost on them; see ranking.
//   - stages: core first checks one pod of each equivalence group against every offering that it gets, and a pod without a
//     controller is a group of its own. A thousand pods and a thousand offerings would be a million simulations of the scheduler.
//     So core gets the 16 best ranked offerings first, and more of them only while there is no option among those.
//   - pruning: bin packing, which takes nearly all the time of a stage, ends when no offering that is left can be cheaper; see
//     evaluation.
type Search struct {
	inner  scaleup.Orchestrator
	config SearchConfig

	autoscaling *cacontext.AutoscalingContext
	// The following is the state of the current scale-up. started is when it started.
	started time.Time
	// only is the one node group that is evaluated; empty for all.
	only string
	// Core gets the offerings at the indexes begin to end-1 of the ranking. The ranking has ranked offerings.
	begin, end, ranked int
	// evaluation is that of the current stage.
	evaluation *evaluation
	// pods are those that may be deferred before an option is chosen. If some were, tooEarly is set, and pods are the others.
	pods     []*apiv1.Pod
	tooEarly bool
	// templates are those of the last scale-up, by node group.
	templates map[string]*framework.NodeInfo
}

var (
	_ scaleup.Orchestrator              = (*Search)(nil)
	_ nodegroups.NodeGroupListProcessor = (*Search)(nil)
	_ binpacking.BinpackingLimiter      = (*Search)(nil)
)

// NewSearch returns a search around core's orchestrator, or around the one that adds ProvisioningRequests to it. It has to be
// installed as NodeGroupListProcessor and as BinpackingLimiter too.
func NewSearch(inner scaleup.Orchestrator, config SearchConfig) *Search {
	return &Search{inner: inner, config: config, end: math.MaxInt}
}

// Initialize initializes the inner orchestrator.
func (s *Search) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	s.autoscaling = autoscaling
	s.inner.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// ScaleUpToNodeGroupMinSize calls the inner orchestrator.
func (s *Search) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return s.inner.ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// ScaleUp calls the inner orchestrator stage by stage, until there is an option or an error. If some of the pods are deferred before
// an option is chosen, it begins anew with the others.
func (s *Search) ScaleUp(unschedulable []*apiv1.Pod, nodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	nodeInfos map[string]*framework.NodeInfo, allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	s.started = s.config.Clock.Now()
	defer func() { s.pods = nil }()
	pods := unschedulable
	restoreTurn := turn.Remember(s.autoscaling)
	for {
		s.tooEarly, s.pods = false, nil
		if !allOrNothing {
			s.pods = pods
		}
		result, err := s.stages(func() (*status.ScaleUpStatus, errors.AutoscalerError) {
			restoreTurn()
			return s.inner.ScaleUp(pods, nodes, daemonSets, nodeInfos, allOrNothing)
		})
		if err == nil && s.tooEarly {
			if pods = s.pods; len(pods) > 0 {
				continue
			}
			result = &status.ScaleUpStatus{Result: status.ScaleUpNotTried}
		}
		if result != nil {
			result.PodsAwaitEvaluation = append(result.PodsAwaitEvaluation, without(unschedulable, pods)...)
			s.explainLeftOut(result, unschedulable)
		}
		return result, err
	}
}

// stages calls the inner orchestrator once, or with ByPrice once for each stage. The status of a scale-up without an option
// has the reasons of all stages.
func (s *Search) stages(scaleUp func() (*status.ScaleUpStatus, errors.AutoscalerError)) (*status.ScaleUpStatus, errors.AutoscalerError) {
	if !s.config.ByPrice {
		return scaleUp()
	}
	defer func() { s.begin, s.end = 0, math.MaxInt }()
	var rejected *status.ScaleUpStatus
	for s.begin, s.end = 0, firstStage; ; s.begin, s.end = s.end, s.end*stageFactor {
		s.ranked = 0
		attempt, err := scaleUp()
		more := s.ranked > s.end
		switch {
		case err != nil || s.tooEarly:
			return attempt, err
		case attempt.Result != status.ScaleUpNoOptionsAvailable:
			if more { // the remaining pods may fit an offering of a later stage
				attempt.PodsAwaitEvaluation = append(attempt.PodsAwaitEvaluation, remainingPods(attempt)...)
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

// Process implements NodeGroupListProcessor. It returns the groups of the current stage, in order.
func (s *Search) Process(_ *cacontext.AutoscalingContext, groups []cloudprovider.NodeGroup, nodeInfos map[string]*framework.NodeInfo,
	unschedulable []*apiv1.Pod) ([]cloudprovider.NodeGroup, map[string]*framework.NodeInfo, error) {
	s.templates = nodeInfos
	groups = slices.DeleteFunc(slices.Clone(groups), func(group cloudprovider.NodeGroup) bool { return s.leftOut(group, unschedulable) != nil })
	if s.only != "" {
		groups = slices.DeleteFunc(slices.Clone(groups), func(group cloudprovider.NodeGroup) bool { return group.Id() != s.only })
	}
	if !s.config.ByPrice {
		return groups, nodeInfos, nil
	}
	demand := demandOf(unschedulable)
	all := rank(groups, nodeInfos, demand, s.config.Offerings)
	s.ranked = len(all)
	stage := all[min(s.begin, s.ranked):min(s.end, s.ranked)]
	s.evaluation = newEvaluation(stage, demand, s.config.Offerings, s.config.Clock)
	return stage.groups(), nodeInfos, nil
}

// Template returns the node that the last scale-up took the node group to bring, nil if it did not consider any.
func (s *Search) Template(groupID string) *framework.NodeInfo { return s.templates[groupID] }

// Only has the scale-ups that buy makes evaluate one node group. Core has nothing to pass that by: it calls the processors of node groups with
// what it knows itself.
func (s *Search) Only(groupID string, buy func()) {
	s.only = groupID
	defer func() { s.only = "" }()
	buy()
}

// CleanUp does nothing.
func (s *Search) CleanUp() {}

// Expander returns a strategy that chooses as the inner one does, unless it is too early to choose.
func (s *Search) Expander(inner expander.Strategy) expander.Strategy { return &patient{inner, s} }

// patient chooses no option if more pods have arrived while core evaluated them. Then core buys nothing.
type patient struct {
	inner  expander.Strategy
	search *Search
}

// BestOption implements expander.Strategy. Core takes it for a failure if there is no option for a ProvisioningRequest.
func (p *patient) BestOption(options []expander.Option, nodeInfos map[string]*framework.NodeInfo) *expander.Option {
	s := p.search
	if s.config.Reopen != nil && len(s.pods) > 0 && !s.autoscaling.ProvisioningRequestScaleUpMode {
		left := s.config.Reopen(s.pods)
		if s.tooEarly = len(left) < len(s.pods); s.tooEarly {
			s.pods = left
			return nil
		}
	}
	return p.inner.BestOption(options, nodeInfos)
}

// InitBinpacking implements BinpackingLimiter. Core calls it once per stage, before it evaluates the first offering.
func (s *Search) InitBinpacking(*cacontext.AutoscalingContext, []cloudprovider.NodeGroup) {
	if s.config.ByPrice {
		s.evaluation.begin()
	}
}

// MarkProcessed implements BinpackingLimiter. Core calls it for each offering that it has evaluated or skipped.
func (s *Search) MarkProcessed(_ *cacontext.AutoscalingContext, groupID string) {
	if s.config.ByPrice {
		s.evaluation.processed.Insert(groupID)
	}
}

// StopBinpacking implements BinpackingLimiter. It returns whether core should choose between the options that there are.
func (s *Search) StopBinpacking(_ *cacontext.AutoscalingContext, options []expander.Option) bool {
	if spent := s.config.Clock.Since(s.started); spent > s.config.MaxBinpackingTime && len(options) > 0 {
		klog.InfoS("Stopping bin packing after --max-binpacking-time, the other offerings are not evaluated", "options", len(options), "spent", spent)
		return true
	}
	return s.config.ByPrice && s.evaluation.isOver(options)
}

// FinalizeBinpacking implements BinpackingLimiter.
func (s *Search) FinalizeBinpacking(*cacontext.AutoscalingContext, []expander.Option) {
	if s.config.ByPrice {
		evaluatedOfferings.Observe(float64(s.evaluation.processed.Len()))
	}
}
