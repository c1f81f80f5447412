package processors

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"
	drasnapshot "k8s.io/autoscaler/cluster-autoscaler/simulator/dynamicresources/snapshot"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Promises knows what nodes were bought as.
type Promises interface {
	// TemplateOf returns what the node's offering promises its nodes to be, never to be changed; nil for a node of no offering.
	TemplateOf(node *apiv1.Node) *apiv1.Node
}

// GPUReadiness takes a node for ready when it offers every GPU resource that its offering promises: whole GPUs, memory of
// shared ones, whatever the template has. A node that has joined before its driver and device plugin run is on its way
// still, and its pods are not bought for again.
//
// Core's own processor goes by the GPU label and nvidia.com/gpu alone. It takes nodes whose GPUs are shared, or handed out
// by topology, for broken for ever, and a node that nobody has labelled yet for ready without its GPUs. It is asked about
// foreign nodes only, and not about those that do offer GPUs.
type GPUReadiness struct {
	promises Promises
	next     customresources.CustomResourcesProcessor
}

var _ customresources.CustomResourcesProcessor = (*GPUReadiness)(nil)

// NewGPUReadiness puts itself in front of another processor, normally core's default one for GPUs.
func NewGPUReadiness(promises Promises, next customresources.CustomResourcesProcessor) *GPUReadiness {
	return &GPUReadiness{promises: promises, next: next}
}

// FilterOutNodesWithUnreadyResources returns all nodes, those that wait for their GPUs as unready copies, and the ready ones.
func (p *GPUReadiness) FilterOutNodesWithUnreadyResources(
	ctx *cacontext.AutoscalingContext, allNodes, readyNodes []*apiv1.Node, dra *drasnapshot.Snapshot,
) ([]*apiv1.Node, []*apiv1.Node) {
	waiting := map[string]*apiv1.Node{}
	var equipped, foreign []*apiv1.Node
	for _, node := range readyNodes {
		template := p.promises.TemplateOf(node)
		if template == nil && !offersGPU(node) {
			foreign = append(foreign, node)
		} else if missing := missingGPUs(node, template); len(missing) > 0 {
			klog.V(3).Infof("Node %s is not ready: it has no %v yet, which its offering promises", node.Name, missing)
			waiting[node.Name] = kubeutil.GetUnreadyNodeCopy(node, kubeutil.ResourceUnready)
		} else {
			equipped = append(equipped, node)
		}
	}
	if len(waiting) > 0 {
		allNodes = slices.Clone(allNodes)
		for i, node := range allNodes {
			if unready := waiting[node.Name]; unready != nil {
				allNodes[i] = unready
			}
		}
	}
	all, ready := p.next.FilterOutNodesWithUnreadyResources(ctx, allNodes, foreign, dra)
	return all, append(ready, equipped...)
}

// missingGPUs are the GPU resources that the template promises and the node does not offer. Without a template none is.
func missingGPUs(node, template *apiv1.Node) (missing []apiv1.ResourceName) {
	if template == nil {
		return nil
	}
	for name, promised := range template.Status.Allocatable {
		if isGPU(name) && !promised.IsZero() && !offers(node, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// GetNodeResourceTargets counts the GPUs of a node against cluster-wide GPU limits, which are of whole GPUs by model. GPUs
// that are offered otherwise do not count, and neither does a foreign node whose GPUs cannot be known: the processor behind
// would fail the whole scale-up.
func (p *GPUReadiness) GetNodeResourceTargets(
	ctx *cacontext.AutoscalingContext, node *apiv1.Node, group cloudprovider.NodeGroup,
) ([]customresources.CustomResourceTarget, errors.AutoscalerError) {
	if !offers(node, api.ResourceGPU) && (group == nil || offersGPU(node)) {
		return nil, nil
	}
	return p.next.GetNodeResourceTargets(ctx, node, group)
}

// CleanUp is called when the autoscaler ends.
func (p *GPUReadiness) CleanUp() { p.next.CleanUp() }

// offersGPU says whether the node offers GPUs in any way.
func offersGPU(node *apiv1.Node) bool {
	for name, quantity := range node.Status.Allocatable {
		if isGPU(name) && !quantity.IsZero() {
			return true
		}
	}
	return false
}

func offers(node *apiv1.Node, name apiv1.ResourceName) bool {
	quantity, ok := node.Status.Allocatable[name]
	return ok && !quantity.IsZero()
}
