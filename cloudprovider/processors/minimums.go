package processors

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
)

// Minimums knows what pools lack of their minimum.
type Minimums interface {
	Shortfalls() []ess.Shortfall
	// SetMinimums gives node groups a minimum size, and takes it from all others.
	SetMinimums(sizes map[string]int)
}

// MinimumOrchestrator has pools bought up to their minimum, for --enforce-node-group-min-size. Core does that for each node
// group by itself, and the minimum of a pool is of the sum over its offerings: so it chooses, with the expander, the one
// offering of each pool to buy what is missing of, and gives that a minimum for as long as core looks. Backoff, limits
// of resources and the account of what is on its way are core's.
type MinimumOrchestrator struct {
	scaleup.Orchestrator
	pools Minimums
	clock clock.PassiveClock

	autoscaling *cacontext.AutoscalingContext
	registry    *clusterstate.ClusterStateRegistry
}

var _ scaleup.Orchestrator = (*MinimumOrchestrator)(nil)

// NewMinimumOrchestrator wraps core's orchestrator, or one around it.
func NewMinimumOrchestrator(inner scaleup.Orchestrator, pools Minimums, clk clock.PassiveClock) *MinimumOrchestrator {
	return &MinimumOrchestrator{Orchestrator: inner, pools: pools, clock: clk}
}

// Initialize hands core's parts on to the wrapped orchestrator.
func (o *MinimumOrchestrator) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	o.autoscaling, o.registry = autoscaling, registry
	o.Orchestrator.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// ScaleUpToNodeGroupMinSize buys what pools lack of their minimum, of one offering each.
func (o *MinimumOrchestrator) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	minimums := map[string]int{}
	now := o.clock.Now()
	for _, short := range o.pools.Shortfalls() {
		best := o.autoscaling.ExpanderStrategy.BestOption(o.options(short, nodeInfos, now), nodeInfos)
		if best == nil {
			klog.V(1).Infof("Pool %s lacks %d of its minimum, and none of its offerings can be bought now", short.PoolID, short.Missing)
			continue
		}
		if target, err := best.NodeGroup.TargetSize(); err == nil {
			minimums[best.NodeGroup.Id()] = target + best.NodeCount
		}
	}
	o.pools.SetMinimums(minimums)
	defer o.pools.SetMinimums(nil)
	return o.Orchestrator.ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// options are the ways to buy what is missing, or as much of it as there is room for. They are for no pods: what they cost
// is all that an expander can go by.
func (o *MinimumOrchestrator) options(short ess.Shortfall, nodeInfos map[string]*framework.NodeInfo, now time.Time) []expander.Option {
	var options []expander.Option
	for _, group := range short.Offerings {
		target, err := group.TargetSize()
		if err != nil || nodeInfos[group.Id()] == nil || !o.registry.NodeGroupScaleUpSafety(group, now).SafeToScale {
			continue
		}
		options = append(options, expander.Option{
			NodeGroup: group, NodeCount: min(short.Missing, group.MaxSize()-target), Debug: "minimum of pool " + short.PoolID,
		})
	}
	return options
}
