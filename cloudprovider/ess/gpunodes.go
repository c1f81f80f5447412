package ess

import (
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

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
