package processors

import (
	"cmp"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodes"
	"k8s.io/autoscaler/cluster-autoscaler/processors/scaledowncandidates"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/options"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/utils/clock"
)

// Snapshot is the cluster as the loop sees it.
type Snapshot interface {
	GetNodeInfo(nodeName string) (*framework.NodeInfo, error)
}

// Releaser knows which nodes may be given back at all.
type Releaser interface {
	// Releasable is false for a node that its pool has to keep.
	Releasable(node *apiv1.Node) bool
}

// Candidates puts the nodes that scale-down may remove in the order in which core is to look at them, since it does not
// look at all: the empty ones, then those looked at in the last loop, then the others as they come. Nodes that may not be
// given back are none of them.
//
// Core's own processor orders likewise, but asks whether a node is empty each time it compares two, which is more than
// half of the time of a loop over thousands of nodes.
type Candidates struct {
	nodes.ScaleDownNodeProcessor
	snapshot Snapshot
	releaser Releaser
	deletion options.NodeDeleteOptions
	rules    rules.Rules
	clock    clock.PassiveClock
	// previous are those of the last loop, by name.
	previous sets.Set[string]
}

var (
	_ nodes.ScaleDownNodeProcessor = (*Candidates)(nil)
	_ scaledowncandidates.Observer = (*Candidates)(nil)
)

// NewCandidates makes a processor that has to be registered as observer of scale-down candidates too.
func NewCandidates(snapshot Snapshot, releaser Releaser, deletion options.NodeDeleteOptions, drainability rules.Rules, clk clock.PassiveClock) *Candidates {
	return &Candidates{
		ScaleDownNodeProcessor: nodes.NewPreFilteringScaleDownNodeProcessor(),
		snapshot:               snapshot, releaser: releaser, deletion: deletion, rules: drainability, clock: clk,
	}
}

// UpdateScaleDownCandidates is told which nodes a loop looked at.
func (c *Candidates) UpdateScaleDownCandidates(candidates []*apiv1.Node, _ time.Time) {
	c.previous = sets.New[string]()
	for _, node := range candidates {
		c.previous.Insert(node.Name)
	}
}

// GetScaleDownCandidates returns the nodes that core would consider at all, in order.
func (c *Candidates) GetScaleDownCandidates(ctx *cacontext.AutoscalingContext, all []*apiv1.Node) ([]*apiv1.Node, errors.AutoscalerError) {
	candidates, err := c.ScaleDownNodeProcessor.GetScaleDownCandidates(ctx, all)
	if err != nil {
		return nil, err
	}
	found := len(candidates)
	candidates = slices.DeleteFunc(candidates, func(node *apiv1.Node) bool { return !c.releaser.Releasable(node) })
	heldNodes.WithLabelValues("kept").Set(float64(found - len(candidates)))
	const emptyOnes, previousOnes, others = 0, 1, 2
	ranks := make(map[string]int, len(candidates))
	for _, node := range candidates {
		switch {
		case c.isEmpty(node):
			ranks[node.Name] = emptyOnes
		case c.previous.Has(node.Name):
			ranks[node.Name] = previousOnes
		default:
			ranks[node.Name] = others
		}
	}
	slices.SortStableFunc(candidates, func(a, b *apiv1.Node) int { return cmp.Compare(ranks[a.Name], ranks[b.Name]) })
	return candidates, nil
}

// isEmpty says whether nothing on the node would have to move.
func (c *Candidates) isEmpty(node *apiv1.Node) bool {
	info, err := c.snapshot.GetNodeInfo(node.Name)
	if err != nil {
		return false
	}
	toMove, _, _, err := simulator.GetPodsToMove(info, c.deletion, c.rules, nil, nil, c.clock.Now())
	return err == nil && len(toMove) == 0
}
