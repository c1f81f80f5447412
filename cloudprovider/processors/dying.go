package processors

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"
	drasnapshot "k8s.io/autoscaler/cluster-autoscaler/simulator/dynamicresources/snapshot"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
)

// Doom knows which nodes are being reclaimed, and which are no capacity for other reasons.
type Doom interface {
	// BeginLoop is called once at the start of each loop with all nodes of the cluster.
	BeginLoop(allNodes []*apiv1.Node)
	// IsDoomed answers alike from one BeginLoop to the next.
	IsDoomed(node *apiv1.Node) bool
	// OutOfService is for nodes that are being given back, or serve nothing. It answers alike from one BeginLoop to the next.
	OutOfService(node *apiv1.Node) bool
}

// DyingNodes removes nodes under reclaim, and those that are out of service, from both node lists of a loop, the first thing
// that core asks a processor to do. They are then neither capacity for pending pods (a cordon alone would not do: pods that
// tolerate everything still fit a cordoned node) nor broken nodes (of which too many make core stop buying, just when it
// must), and their pods neither count for spreading nor block a volume for their successors. Nor do they pass for what was
// bought meanwhile: core takes what a group lacks of its target for what is still to come, and such nodes are no part of it.
type DyingNodes struct {
	doom  Doom
	next  customresources.CustomResourcesProcessor
	begin []func()
}

var _ customresources.CustomResourcesProcessor = (*DyingNodes)(nil)

// NewDyingNodes puts itself in front of another processor. It also calls begin at the start of each loop, before core lists
// the pods (RunOnce in core/static_autoscaler.go of Cluster Autoscaler 1.33: obtainNodeLists, then listPods).
func NewDyingNodes(doom Doom, next customresources.CustomResourcesProcessor, begin ...func()) *DyingNodes {
	return &DyingNodes{doom: doom, next: next, begin: begin}
}

// FilterOutNodesWithUnreadyResources begins the loop and returns the lists without what is no capacity.
func (p *DyingNodes) FilterOutNodesWithUnreadyResources(
	ctx *cacontext.AutoscalingContext, allNodes, readyNodes []*apiv1.Node, dra *drasnapshot.Snapshot,
) ([]*apiv1.Node, []*apiv1.Node) {
	p.doom.BeginLoop(allNodes)
	for _, begin := range p.begin {
		begin()
	}
	p.count(allNodes)
	return p.next.FilterOutNodesWithUnreadyResources(ctx, p.alive(allNodes), p.alive(readyNodes), dra)
}

func (p *DyingNodes) alive(nodes []*apiv1.Node) []*apiv1.Node {
	alive := make([]*apiv1.Node, 0, len(nodes))
	for _, node := range nodes {
		if !p.doom.IsDoomed(node) && !p.doom.OutOfService(node) {
			alive = append(alive, node)
		}
	}
	return alive
}

func (p *DyingNodes) count(nodes []*apiv1.Node) {
	doomed, others := 0, 0
	for _, node := range nodes {
		switch {
		case p.doom.IsDoomed(node):
			doomed++
		case p.doom.OutOfService(node):
			others++
		}
	}
	doomedNodes.Set(float64(doomed))
	nodesOutOfService.Set(float64(others))
}

// GetNodeResourceTargets is left to the processor behind.
func (p *DyingNodes) GetNodeResourceTargets(
	ctx *cacontext.AutoscalingContext, node *apiv1.Node, group cloudprovider.NodeGroup,
) ([]customresources.CustomResourceTarget, errors.AutoscalerError) {
	return p.next.GetNodeResourceTargets(ctx, node, group)
}

// CleanUp is called when the autoscaler ends.
func (p *DyingNodes) CleanUp() { p.next.CleanUp() }
