package scaledown

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

// Instances are those of the nodes.
type Instances interface {
	// MayGiveBack returns false for a node that its pool has to keep.
	MayGiveBack(node *apiv1.Node) bool
}

// Candidates orders the nodes that scale-down may remove: first the empty ones, then those that were candidates in the last
// loop, then the others. It leaves out the nodes that must not be removed, and those with a training pod that [TrainingPods]
// protects: core would come to the same result, but would consider such a node again only after
// --unremovable-node-recheck-timeout (5 minutes), even if its training ends before.
//
// Core's own processor has the same order, but evaluates whether a node is empty each time it compares two of them.
type Candidates struct {
	nodes.ScaleDownNodeProcessor
	snapshot  Snapshot
	instances Instances
	training  *TrainingPods
	deletion  options.NodeDeleteOptions
	rules     rules.Rules
	clock     clock.PassiveClock
	// previous are the names of the candidates of the last loop.
	previous sets.Set[string]
}

var (
	_ nodes.ScaleDownNodeProcessor = (*Candidates)(nil)
	_ scaledowncandidates.Observer = (*Candidates)(nil)
)

// NewCandidates returns a processor that has to be registered with core's ScaleDownCandidatesNotifier too. The drainability
// rules contain the training rule.
func NewCandidates(snapshot Snapshot, instances Instances, training *TrainingPods, deletion options.NodeDeleteOptions, drainability rules.Rules,
	clk clock.PassiveClock) *Candidates {
	return &Candidates{
		ScaleDownNodeProcessor: nodes.NewPreFilteringScaleDownNodeProcessor(),
		snapshot:               snapshot, instances: instances, training: training, deletion: deletion, rules: drainability, clock: clk,
	}
}

// UpdateScaleDownCandidates records the candidates of a loop for the order in the next one.
func (c *Candidates) UpdateScaleDownCandidates(candidates []*apiv1.Node, _ time.Time) {
	c.previous = sets.New[string]()
	for _, node := range candidates {
		c.previous.Insert(node.Name)
	}
}

// GetScaleDownCandidates returns the candidates in order.
func (c *Candidates) GetScaleDownCandidates(ctx *cacontext.AutoscalingContext, all []*apiv1.Node) ([]*apiv1.Node, errors.AutoscalerError) {
	candidates, err := c.ScaleDownNodeProcessor.GetScaleDownCandidates(ctx, all)
	if err != nil {
		return nil, err
	}
	found := len(candidates)
	candidates = slices.DeleteFunc(candidates, func(node *apiv1.Node) bool { return !c.instances.MayGiveBack(node) })
	keptNodes.WithLabelValues("kept").Set(float64(found - len(candidates)))
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
	// training is the rank of nodes that are no candidates.
	training
)

// rank depends on the pods that would have to be moved.
func (c *Candidates) rank(node *apiv1.Node) rank {
	if info, err := c.snapshot.GetNodeInfo(node.Name); err == nil {
		toMove, _, blocking, err := simulator.GetPodsToMove(info, c.deletion, c.rules, nil, nil, c.clock.Now())
		if blocking != nil && c.training.blocks(blocking.Pod, info.Node()) {
			klog.V(4).InfoS("Node is no scale-down candidate, a training pod runs on it", "node", klog.KObj(node), "pod", klog.KObj(blocking.Pod))
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
