package scaledown

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodes"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
)

// Pools knows the pool of each node.
type Pools interface {
	// PoolOf returns false for a node that belongs to no pool.
	PoolOf(node *apiv1.Node) (ess.PoolStatus, bool)
}

// PoolLimits keeps scale-down from taking a pool below its minimum size, and from removing nodes during the pool's cooldown.
// Core knows sizes and delays of node groups only, and a pool consists of many.
//
// It filters the nodes that are due for removal, not the candidates. So the time for which a node has been unneeded goes on
// during the cooldown, and a node that was idle throughout is removed as soon as the cooldown ends.
type PoolLimits struct {
	pools    Pools
	cooldown time.Duration
	clock    clock.PassiveClock
	next     nodes.ScaleDownSetProcessor
}

var _ nodes.ScaleDownSetProcessor = (*PoolLimits)(nil)

// NewPoolLimits returns a processor that calls next with the nodes that it lets go. The processor that keeps atomic node
// groups whole must be the last one. The cooldown is that of pools which have none of their own.
func NewPoolLimits(pools Pools, cooldown time.Duration, clk clock.PassiveClock, next nodes.ScaleDownSetProcessor) *PoolLimits {
	return &PoolLimits{pools: pools, cooldown: cooldown, clock: clk, next: next}
}

// FilterUnremovableNodes splits the candidates into those to remove and those to keep. Core passes the empty ones first.
func (l *PoolLimits) FilterUnremovableNodes(ctx *cacontext.AutoscalingContext, scaleDown *nodes.ScaleDownContext, candidates []simulator.NodeToBeRemoved,
) (remove []simulator.NodeToBeRemoved, keep []simulator.UnremovableNode) {
	taken := l.inDeletion(ctx, scaleDown)
	var cooling, atMinimum int
	for _, candidate := range candidates {
		pool, ours := l.pools.PoolOf(candidate.Node)
		switch {
		case !ours:
			remove = append(remove, candidate)
		case pool.CoolsDown(l.cooldown, l.clock.Now()):
			cooling++
			keep = append(keep, simulator.UnremovableNode{Node: candidate.Node, Reason: simulator.NotUnneededLongEnough})
		case pool.Size-taken[pool.ID] <= pool.MinSize:
			atMinimum++
			keep = append(keep, simulator.UnremovableNode{Node: candidate.Node, Reason: simulator.NodeGroupMinSizeReached})
		default:
			taken[pool.ID]++
			remove = append(remove, candidate)
		}
	}
	keptNodes.WithLabelValues("cooldown").Set(float64(cooling))
	keptNodes.WithLabelValues("minimum").Set(float64(atMinimum))

	remove, more := l.next.FilterUnremovableNodes(ctx, scaleDown, remove)
	return remove, append(keep, more...)
}

// inDeletion counts, by pool, the nodes that core is draining or deleting. The provider learns of a removal only after the
// drain. From then until core records the node as gone it is counted twice, which can only make the pool keep more.
func (l *PoolLimits) inDeletion(ctx *cacontext.AutoscalingContext, scaleDown *nodes.ScaleDownContext) map[string]int {
	taken := map[string]int{}
	if scaleDown == nil || scaleDown.ActuationStatus == nil {
		return taken
	}
	empty, drained := scaleDown.ActuationStatus.DeletionsInProgress()
	for _, names := range [][]string{empty, drained} {
		for _, name := range names {
			node, err := ctx.AllNodeLister().Get(name)
			if err != nil {
				continue // gone
			}
			if pool, ours := l.pools.PoolOf(node); ours {
				taken[pool.ID]++
			}
		}
	}
	return taken
}

// CleanUp cleans up the next processor.
func (l *PoolLimits) CleanUp() { l.next.CleanUp() }
