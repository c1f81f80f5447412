package customresources

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"
	drasnapshot "k8s.io/autoscaler/cluster-autoscaler/simulator/dynamicresources/snapshot"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
)

// Provider knows which nodes are capacity.
type Provider interface {
	// BeginLoop is called once at the start of each loop, with all nodes of the cluster.
	BeginLoop(allNodes []*apiv1.Node)
	// IsReclaiming returns whether the node is being reclaimed. The answer does not change until the next BeginLoop.
	IsReclaiming(node *apiv1.Node) bool
	// OutOfService returns whether the node's instance is being given back, is gone, stands by or is stopped. The answer
	// does not change until the next BeginLoop.
	OutOfService(node *apiv1.Node) bool
}

// ReclaimingNodes removes reclaiming nodes, and those that are out of service, from both node lists of a loop. Therefore
//
//   - they are no capacity for pending pods: pods that tolerate all taints still fit a cordoned node;
//   - they are not unready nodes, of which too many make core stop all scale-ups;
//   - their pods neither count for topology spreading nor occupy a volume that their successors need;
//   - they do not count as registered nodes, so core does not subtract them from what a node group has yet to deliver.
type ReclaimingNodes struct {
	provider Provider
	next     customresources.CustomResourcesProcessor
	begin    []func()
}

var _ customresources.CustomResourcesProcessor = (*ReclaimingNodes)(nil)

// NewReclaimingNodes returns a processor that filters both lists and then calls next. At the start of each loop it calls
// the begin functions, which is before core lists the pods.
func NewReclaimingNodes(provider Provider, next customresources.CustomResourcesProcessor, begin ...func()) *ReclaimingNodes {
	return &ReclaimingNodes{provider: provider, next: next, begin: begin}
}

// FilterOutNodesWithUnreadyResources begins the loop and returns both lists without the nodes that are no capacity.
func (p *ReclaimingNodes) FilterOutNodesWithUnreadyResources(
	ctx *cacontext.AutoscalingContext, allNodes, readyNodes []*apiv1.Node, dra *drasnapshot.Snapshot,
) ([]*apiv1.Node, []*apiv1.Node) {
	p.provider.BeginLoop(allNodes)
	for _, begin := range p.begin {
		begin()
	}
	p.updateMetrics(allNodes)
	return p.next.FilterOutNodesWithUnreadyResources(ctx, p.capacity(allNodes), p.capacity(readyNodes), dra)
}

func (p *ReclaimingNodes) capacity(nodes []*apiv1.Node) []*apiv1.Node {
	capacity := make([]*apiv1.Node, 0, len(nodes))
	for _, node := range nodes {
		if !p.provider.IsReclaiming(node) && !p.provider.OutOfService(node) {
			capacity = append(capacity, node)
		}
	}
	return capacity
}

func (p *ReclaimingNodes) updateMetrics(nodes []*apiv1.Node) {
	reclaiming, outOfService := 0, 0
	for _, node := range nodes {
		switch {
		case p.provider.IsReclaiming(node):
			reclaiming++
		case p.provider.OutOfService(node):
			outOfService++
		}
	}
	reclaimingNodes.Set(float64(reclaiming))
	nodesOutOfService.Set(float64(outOfService))
}

// GetNodeResourceTargets returns what the next processor returns.
func (p *ReclaimingNodes) GetNodeResourceTargets(
	ctx *cacontext.AutoscalingContext, node *apiv1.Node, group cloudprovider.NodeGroup,
) ([]customresources.CustomResourceTarget, errors.AutoscalerError) {
	return p.next.GetNodeResourceTargets(ctx, node, group)
}

// CleanUp cleans up the next processor.
func (p *ReclaimingNodes) CleanUp() { p.next.CleanUp() }
