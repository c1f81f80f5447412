package ess

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// TemplateOf returns the node that the offering of a node promises, never to be changed; nil for a node of no offering.
func (p *Provider) TemplateOf(node *apiv1.Node) *apiv1.Node {
	p.mu.RLock()
	defer p.mu.RUnlock()
	handle := p.handleOf(node)
	if handle == nil {
		return nil
	}
	if known := p.knownOffering(handle); known != nil {
		return known.template
	}
	return nil
}

// BuysForCPUPods says whether nodes of the group may be bought for pods that ask for no GPU: none that may come has GPUs, or
// the pool's tags allow it.
func (p *Provider) BuysForCPUPods(groupID string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	handle := p.handles[groupID]
	if handle == nil {
		return false
	}
	pool, known := p.pools[handle.poolID], p.knownOffering(handle)
	if pool == nil || known == nil {
		return false
	}
	if pool.settings.BuyForCPUPods {
		return true
	}
	if pool.targeting != targetWhole {
		return !known.hasGPUs()
	}
	for _, offered := range pool.offerings {
		if offered.hasGPUs() {
			return false
		}
	}
	return true
}

// hasGPUs says whether the type has GPUs of any maker, or the tags promise some.
func (o *knownOffering) hasGPUs() bool {
	promised := o.template.Status.Allocatable
	return o.shape.GPUs > 0 || isPositive(promised, api.ResourceGPU) || isPositive(promised, api.ResourceGPUMemory) || isPositive(promised, api.ResourceTopologyGPU)
}

func isPositive(list apiv1.ResourceList, name apiv1.ResourceName) bool {
	quantity := list[name]
	return quantity.Sign() > 0
}

// sharedGPUs refuses a pool that shares GPUs by memory where a node has several. A pod gets its memory on one of them
// ("the upper limit of the GPU resource requested by the user does not exceed one GPU": docs/designs of
// AliyunContainerService/gpushare-scheduler-extender), but a Node states the sum: two GPUs with 10 GiB left on each look
// like room for a pod of 20 GiB. Cluster Autoscaler would take such a pod for placed, and never buy for it.
func (p *pool) sharedGPUs() error {
	for _, offered := range p.offerings {
		if offered.shape.GPUs > 1 && isPositive(offered.template.Status.Allocatable, api.ResourceGPUMemory) {
			return fmt.Errorf("its nodes share GPUs by memory (%s), and a node of %s has %d GPUs: which pods fit cannot be told from "+
				"the sum of their memory. Share GPUs in pools of types with one GPU only, or hand out whole GPUs", api.ResourceGPUMemory, offered.shape.ID, offered.shape.GPUs)
		}
	}
	return nil
}
