package processors

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodes"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/utils/clock"
)

// Pool is a pool as scale-down has to see it.
type Pool struct {
	ID string
	// Size counts the instances of all offerings of the pool that are there, without those that are doomed or being removed.
	Size int
	// MinSize is the floor that scale-down must leave.
	MinSize int
	// Cooldown is how long after LastScaleUp the pool is not scaled down.
	Cooldown    time.Duration
	LastScaleUp time.Time
}

// Pools knows the pool of each node.
type Pools interface {
	// PoolOf is false for a node of no pool.
	PoolOf(node *apiv1.Node) (Pool, bool)
}

// PoolLimits keeps scale-down from taking a pool below its minimum size or while it cools down. Core knows sizes per
// node group only, and a pool's minimum is of the sum over its offerings.
//
// It has the last word on nodes that are due, so that the time for which they have been unneeded goes on running: a
// node that was idle throughout the cooldown goes as soon as the cooldown ends.
type PoolLimits struct {
	pools Pools
	clock clock.PassiveClock
	next  nodes.ScaleDownSetProcessor
}

var _ nodes.ScaleDownSetProcessor = (*PoolLimits)(nil)

// NewPoolLimits puts itself in front of another processor; the one that keeps atomic groups whole must be last.
func NewPoolLimits(pools Pools, clk clock.PassiveClock, next nodes.ScaleDownSetProcessor) *PoolLimits {
	return &PoolLimits{pools: pools, clock: clk, next: next}
}

// FilterUnremovableNodes splits the candidates, which come with the empty ones first, into those to go and those to stay.
func (l *PoolLimits) FilterUnremovableNodes(ctx *cacontext.AutoscalingContext, scaleDown *nodes.ScaleDownContext, candidates []simulator.NodeToBeRemoved,
) (remove []simulator.NodeToBeRemoved, keep []simulator.UnremovableNode) {
	taken := l.inDeletion(ctx, scaleDown)
	var cooling, atMinimum int
	for _, candidate := range candidates {
		pool, ours := l.pools.PoolOf(candidate.Node)
		switch {
		case !ours:
			remove = append(remove, candidate)
		case pool.Cooldown > 0 && l.clock.Since(pool.LastScaleUp) < pool.Cooldown:
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
	heldNodes.WithLabelValues("cooldown").Set(float64(cooling))
	heldNodes.WithLabelValues("minimum").Set(float64(atMinimum))

	remove, more := l.next.FilterUnremovableNodes(ctx, scaleDown, remove)
	return remove, append(keep, more...)
}

// inDeletion counts, by pool, the nodes that core is draining or deleting. The provider hears of them only after the
// drain. One of which it has heard already is counted twice for the moment until core is told that it is gone: that
// can only make the pool keep more.
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

// CleanUp is called when the autoscaler ends.
func (l *PoolLimits) CleanUp() { l.next.CleanUp() }
