package scaleup

import (
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
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
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// Pools knows what pools lack of their minimum size.
type Pools interface {
	Shortfalls() []ess.Shortfall
}

// PoolMinimums buys pools up to their minimum size, for --enforce-node-group-min-size. Core does that for each node group alone,
// but the minimum of a pool applies to the sum over its offerings. So PoolMinimums lets the expander choose the offering of each
// pool to buy what is missing of, and has core scale up a provider in which that node group has a minimum size. Backoff, resource
// limits and upcoming nodes are left to core.
type PoolMinimums struct {
	scaleup.Orchestrator
	pools Pools
	clock clock.PassiveClock

	autoscaling *cacontext.AutoscalingContext
	registry    *clusterstate.ClusterStateRegistry
	// core returns core's own orchestrator for another provider than that of the cluster.
	core func(cloudprovider.CloudProvider) scaleup.Orchestrator
}

var _ scaleup.Orchestrator = (*PoolMinimums)(nil)

// NewPoolMinimums returns an orchestrator around the inner one.
func NewPoolMinimums(inner scaleup.Orchestrator, pools Pools, clk clock.PassiveClock) *PoolMinimums {
	return &PoolMinimums{Orchestrator: inner, pools: pools, clock: clk}
}

// Initialize initializes the inner orchestrator.
func (m *PoolMinimums) Initialize(autoscaling *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder, taintConfig taints.TaintConfig) {
	m.autoscaling, m.registry = autoscaling, registry
	m.core = func(provider cloudprovider.CloudProvider) scaleup.Orchestrator {
		own, of := orchestrator.New(), *autoscaling
		of.CloudProvider = provider
		own.Initialize(&of, processors, registry, estimators, taintConfig)
		return own
	}
	m.Orchestrator.Initialize(autoscaling, processors, registry, estimators, taintConfig)
}

// ScaleUpToNodeGroupMinSize buys what pools lack of their minimum, of one offering each.
func (m *PoolMinimums) ScaleUpToNodeGroupMinSize(nodes []*apiv1.Node, nodeInfos map[string]*framework.NodeInfo,
) (*status.ScaleUpStatus, errors.AutoscalerError) {
	minimums := map[string]int{}
	now := m.clock.Now()
	for _, short := range m.pools.Shortfalls() {
		best := m.autoscaling.ExpanderStrategy.BestOption(m.options(short, nodeInfos, now), nodeInfos)
		if best == nil {
			klog.V(1).InfoS("Pool is below its minimum size, and none of its offerings can be bought now", "pool", short.PoolID, "missing", short.Missing)
			continue
		}
		if target, err := best.NodeGroup.TargetSize(); err == nil {
			minimums[best.NodeGroup.Id()] = target + best.NodeCount
		}
	}
	return m.core(withMinimums{m.autoscaling.CloudProvider, minimums}).ScaleUpToNodeGroupMinSize(nodes, nodeInfos)
}

// withMinimums is the provider, but that some of its node groups have a minimum size.
type withMinimums struct {
	cloudprovider.CloudProvider
	// minimums are by the ids of the node groups.
	minimums map[string]int
}

// NodeGroups returns the node groups, those with a minimum size among them.
func (p withMinimums) NodeGroups() []cloudprovider.NodeGroup {
	groups := slices.Clone(p.CloudProvider.NodeGroups())
	for i, group := range groups {
		if size, raised := p.minimums[group.Id()]; raised {
			groups[i] = withMinimum{group, size}
		}
	}
	return groups
}

// withMinimum is a node group with another minimum size.
type withMinimum struct {
	cloudprovider.NodeGroup
	minimum int
}

var _ reasons.Obstructed = withMinimum{}

// MinSize returns that minimum size.
func (g withMinimum) MinSize() int { return g.minimum }

// Obstacle returns what that of the node group does, which embedding the interface of core hides.
func (g withMinimum) Obstacle() *reasons.Reason {
	if blocked, ok := g.NodeGroup.(reasons.Obstructed); ok {
		return blocked.Obstacle()
	}
	return nil
}

// options returns the ways to buy what is missing, or as much of it as the node group may grow. They have no pods, so an expander
// can choose by their price only.
func (m *PoolMinimums) options(short ess.Shortfall, nodeInfos map[string]*framework.NodeInfo, now time.Time) []expander.Option {
	var options []expander.Option
	for _, group := range short.Offerings {
		target, err := group.TargetSize()
		if err != nil || nodeInfos[group.Id()] == nil || !m.registry.NodeGroupScaleUpSafety(group, now).SafeToScale {
			continue
		}
		options = append(options, expander.Option{
			NodeGroup: group, NodeCount: min(short.Missing, group.MaxSize()-target), Debug: "minimum of pool " + short.PoolID,
		})
	}
	return options
}
