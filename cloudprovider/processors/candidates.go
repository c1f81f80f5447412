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
	"k8s.io/klog/v2"
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
// given back are none of them, nor are those that [TrainingStays] keeps: core would find so by itself, but look at such a
// node again only after --unremovable-node-recheck-timeout (5 minutes), however soon its training ends.
//
// Core's own processor orders likewise, but asks whether a node is empty each time it compares two, which is more than
// half of the time of a loop over thousands of nodes.
type Candidates struct {
	nodes.ScaleDownNodeProcessor
	snapshot Snapshot
	releaser Releaser
	training *TrainingStays
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
// The training rule is one of those of drainability.
func NewCandidates(snapshot Snapshot, releaser Releaser, training *TrainingStays, deletion options.NodeDeleteOptions, drainability rules.Rules,
	clk clock.PassiveClock) *Candidates {
	return &Candidates{
		ScaleDownNodeProcessor: nodes.NewPreFilteringScaleDownNodeProcessor(),
		snapshot:               snapshot, releaser: releaser, training: training, deletion: deletion, rules: drainability, clock: clk,
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
	ranks := make(map[string]rank, len(candidates))
	for _, node := range candidates {
		ranks[node.Name] = c.rank(node)
	}
	candidates = slices.DeleteFunc(candidates, func(node *apiv1.Node) bool { return ranks[node.Name] == training })
	slices.SortStableFunc(candidates, func(a, b *apiv1.Node) int { return cmp.Compare(ranks[a.Name], ranks[b.Name]) })
	return candidates, nil
}

// rank is the place of a node in the order.
type rank int

const (
	empty rank = iota
	previous
	other
	// training is of nodes that have no place in it.
	training
)

// rank goes by what would have to move off the node.
func (c *Candidates) rank(node *apiv1.Node) rank {
	if info, err := c.snapshot.GetNodeInfo(node.Name); err == nil {
		toMove, _, blocking, err := simulator.GetPodsToMove(info, c.deletion, c.rules, nil, nil, c.clock.Now())
		if blocking != nil && c.training.keeps(blocking.Pod, info.Node()) {
			klog.V(4).Infof("Node %s stays for the training of %s/%s", node.Name, blocking.Pod.Namespace, blocking.Pod.Name)
			return training
		}
		if err == nil && len(toMove) == 0 {
			return empty
		}
	}
	if c.previous.Has(node.Name) {
		return previous
	}
	return other
}
