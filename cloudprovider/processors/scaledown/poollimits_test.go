package scaledown

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodes"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// poolsByLetter puts a node in the pool that its name begins with.
type poolsByLetter map[string]ess.PoolStatus

func (p poolsByLetter) PoolOf(node *apiv1.Node) (ess.PoolStatus, bool) {
	pool, ok := p[node.Name[:1]]
	pool.ID = node.Name[:1]
	return pool, ok
}

// last stands for the processor behind: it refuses the nodes it is made of.
type last map[string]bool

func (l last) FilterUnremovableNodes(_ *cacontext.AutoscalingContext, _ *nodes.ScaleDownContext, candidates []simulator.NodeToBeRemoved,
) (remove []simulator.NodeToBeRemoved, keep []simulator.UnremovableNode) {
	for _, candidate := range candidates {
		if l[candidate.Node.Name] {
			keep = append(keep, simulator.UnremovableNode{Node: candidate.Node, Reason: simulator.AtomicScaleDownFailed})
		} else {
			remove = append(remove, candidate)
		}
	}
	return remove, keep
}

func (l last) CleanUp() {}

func TestPoolLimits(t *testing.T) {
	four := []string{"a1", "a2", "a3", "a4"}
	tests := map[string]struct {
		pools      poolsByLetter
		cooldown   time.Duration
		candidates []string
		deletions  testutil.Deletions
		next       last
		remove     []string
		keep       map[string]simulator.UnremovableReason
	}{
		"without a minimum all may go": {
			pools: poolsByLetter{"a": {Size: 4}}, candidates: four, remove: four,
		},
		"the minimum stays, the first candidates go": {
			pools: poolsByLetter{"a": {Size: 4, MinSize: 2}}, candidates: four, remove: four[:2],
			keep: map[string]simulator.UnremovableReason{"a3": simulator.NodeGroupMinSizeReached, "a4": simulator.NodeGroupMinSizeReached},
		},
		"a pool below its minimum gives nothing": {
			pools: poolsByLetter{"a": {Size: 1, MinSize: 2}}, candidates: four[:1],
			keep: map[string]simulator.UnremovableReason{"a1": simulator.NodeGroupMinSizeReached},
		},
		"nodes that core is draining have left already": {
			pools: poolsByLetter{"a": {Size: 4, MinSize: 1}}, candidates: four[2:], deletions: testutil.Deletions{Empty: four[:1], Drained: four[1:2]},
			remove: four[2:3],
			keep:   map[string]simulator.UnremovableReason{"a4": simulator.NodeGroupMinSizeReached},
		},
		"pools are counted apart, foreign nodes not at all": {
			pools: poolsByLetter{"a": {Size: 1, MinSize: 1}, "b": {Size: 2, MinSize: 1}}, candidates: []string{"a1", "b1", "x1"},
			deletions: testutil.Deletions{Empty: []string{"x1", "gone"}},
			remove:    []string{"b1", "x1"},
			keep:      map[string]simulator.UnremovableReason{"a1": simulator.NodeGroupMinSizeReached},
		},
		"a pool that cools down keeps all": {
			pools: poolsByLetter{"a": {Size: 4, Cooldown: ptr.To(time.Minute), LastScaleUp: testutil.Epoch.Add(-59 * time.Second)}}, candidates: four[:2],
			keep: map[string]simulator.UnremovableReason{"a1": simulator.NotUnneededLongEnough, "a2": simulator.NotUnneededLongEnough},
		},
		"the cooldown ends": {
			pools: poolsByLetter{"a": {Size: 4, Cooldown: ptr.To(time.Minute), LastScaleUp: testutil.Epoch.Add(-time.Minute)}}, candidates: four[:2], remove: four[:2],
		},
		"a pool without a cooldown has that of the flag": {
			pools: poolsByLetter{"a": {Size: 4, LastScaleUp: testutil.Epoch.Add(-59 * time.Second)}}, cooldown: time.Minute, candidates: four[:1],
			keep: map[string]simulator.UnremovableReason{"a1": simulator.NotUnneededLongEnough},
		},
		"a pool may have a shorter one": {
			pools: poolsByLetter{"a": {Size: 4, Cooldown: ptr.To(time.Second), LastScaleUp: testutil.Epoch.Add(-59 * time.Second)}}, cooldown: time.Minute,
			candidates: four[:1], remove: four[:1],
		},
		"or none": {
			pools: poolsByLetter{"a": {Size: 4, Cooldown: ptr.To(time.Duration(0)), LastScaleUp: testutil.Epoch}}, cooldown: time.Minute,
			candidates: four[:1], remove: four[:1],
		},
		"the processor behind has its say": {
			pools: poolsByLetter{"a": {Size: 4, MinSize: 3}}, candidates: four[:2], next: last{"a1": true},
			keep: map[string]simulator.UnremovableReason{"a1": simulator.AtomicScaleDownFailed, "a2": simulator.NodeGroupMinSizeReached},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var all []*apiv1.Node
			for _, name := range []string{"a1", "a2", "a3", "a4", "b1", "x1"} {
				all = append(all, testutil.NewNode(name))
			}
			ctx, _, _ := testutil.NewContext(nil, all)
			var candidates []simulator.NodeToBeRemoved
			for _, name := range test.candidates {
				candidates = append(candidates, simulator.NodeToBeRemoved{Node: testutil.NewNode(name)})
			}
			limits := NewPoolLimits(test.pools, test.cooldown, testingclock.NewFakePassiveClock(testutil.Epoch), test.next)
			remove, keep := limits.FilterUnremovableNodes(ctx, &nodes.ScaleDownContext{ActuationStatus: test.deletions}, candidates)

			removed, kept := []string(nil), map[string]simulator.UnremovableReason(nil)
			for _, node := range remove {
				removed = append(removed, node.Node.Name)
			}
			for _, node := range keep {
				if kept == nil {
					kept = map[string]simulator.UnremovableReason{}
				}
				kept[node.Node.Name] = node.Reason
			}
			assert.Equal(t, test.remove, removed)
			assert.Equal(t, test.keep, kept)
		})
	}
}
