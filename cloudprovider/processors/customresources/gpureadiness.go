package customresources

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
	"gpu-spot-autoscaler/cloudprovider/processors"
)

// Templates knows what nodes were bought as.
type Templates interface {
	// TemplateOf returns the node template of the node's offering, which must not be changed. It returns nil for a node that
	// belongs to no offering.
	TemplateOf(node *apiv1.Node) *apiv1.Node
}

// GPUReadiness takes a node for ready when it offers every GPU resource of its offering's template: whole GPUs, memory of
// shared ones, and any other. A node whose driver and device plugin do not run yet counts as upcoming, so that core does not
// buy again for the pods that it was bought for.
//
// Core's own processor looks at the GPU label and at nvidia.com/gpu only. It would take nodes whose GPUs are shared or
// assigned by topology for unready for ever, and a node without the label for ready before it has its GPUs. So it decides about
// nodes only that belong to no offering and offer no GPU.
type GPUReadiness struct {
	templates Templates
	next      customresources.CustomResourcesProcessor
}

var _ customresources.CustomResourcesProcessor = (*GPUReadiness)(nil)

// NewGPUReadiness returns a processor that calls next, normally core's default one for GPUs, for nodes of no offering.
func NewGPUReadiness(templates Templates, next customresources.CustomResourcesProcessor) *GPUReadiness {
	return &GPUReadiness{templates: templates, next: next}
}

// FilterOutNodesWithUnreadyResources returns all nodes, with those that wait for their GPUs replaced by unready copies, and
// the ready nodes without them.
func (p *GPUReadiness) FilterOutNodesWithUnreadyResources(
	ctx *cacontext.AutoscalingContext, allNodes, readyNodes []*apiv1.Node, dra *drasnapshot.Snapshot,
) ([]*apiv1.Node, []*apiv1.Node) {
	unready := map[string]*apiv1.Node{}
	var ready, others []*apiv1.Node
	for _, node := range readyNodes {
		template := p.templates.TemplateOf(node)
		if template == nil && !processors.OffersGPU(node) {
			others = append(others, node)
		} else if missing := missingGPUs(node, template); len(missing) > 0 {
			klog.V(3).InfoS("Node does not offer the GPUs of its template yet", "node", klog.KObj(node), "missing", missing)
			unready[node.Name] = kubeutil.GetUnreadyNodeCopy(node, kubeutil.ResourceUnready)
		} else {
			ready = append(ready, node)
		}
	}
	if len(unready) > 0 {
		allNodes = slices.Clone(allNodes)
		for i, node := range allNodes {
			if replacement := unready[node.Name]; replacement != nil {
				allNodes[i] = replacement
			}
		}
	}
	all, others := p.next.FilterOutNodesWithUnreadyResources(ctx, allNodes, others, dra)
	return all, append(others, ready...)
}

// missingGPUs returns the GPU resources that the template has and the node does not offer. It returns none where template
// is nil.
func missingGPUs(node, template *apiv1.Node) (missing []apiv1.ResourceName) {
	if template == nil {
		return nil
	}
	for name, quantity := range template.Status.Allocatable {
		if processors.IsGPU(name) && !quantity.IsZero() && !offers(node, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// GetNodeResourceTargets counts the whole GPUs of a node against the cluster-wide limits of --gpu-total. It returns nil for
// nodes whose GPUs are offered in another way, and for nodes of no offering whose GPUs are not known: the next processor would
// return an error for those, which ends the scale-up.
func (p *GPUReadiness) GetNodeResourceTargets(
	ctx *cacontext.AutoscalingContext, node *apiv1.Node, group cloudprovider.NodeGroup,
) ([]customresources.CustomResourceTarget, errors.AutoscalerError) {
	if !offers(node, api.ResourceGPU) && (group == nil || processors.OffersGPU(node)) {
		return nil, nil
	}
	return p.next.GetNodeResourceTargets(ctx, node, group)
}

// CleanUp cleans up the next processor.
func (p *GPUReadiness) CleanUp() { p.next.CleanUp() }

func offers(node *apiv1.Node, name apiv1.ResourceName) bool {
	quantity, ok := node.Status.Allocatable[name]
	return ok && !quantity.IsZero()
}
