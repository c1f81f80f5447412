package pricing

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/utils/gpu"
	resourcehelper "k8s.io/component-helpers/resource"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// gpuMemoryGiB is how much requested GPU memory counts as one GPU. It must not depend on the node: otherwise the same pods
// would be worth more on one node than on another.
const gpuMemoryGiB = 16

// Demand is what pods request together, as far as it decides what they cost.
type Demand struct {
	// GPUs are whole GPUs and, for shared ones, their number or their memory in units of 16 GiB, whichever is more.
	GPUs float64
	// CPUs are in cores.
	CPUs      float64
	MemoryGiB float64
}

// Cost returns what one unit of the demand costs, where the nodes for all of it have the given price: a GPU, or a CPU if no
// GPUs are requested. For a demand without either it returns the price itself. All offerings are compared by this cost.
func Cost(price float64, demand Demand) float64 {
	switch {
	case demand.GPUs > 0:
		return price / demand.GPUs
	case demand.CPUs > 0:
		return price / demand.CPUs
	}
	return price
}

// DemandOf returns what the pods request together.
func DemandOf(pods ...*apiv1.Pod) Demand {
	var sum Demand
	for _, pod := range pods {
		sum = sum.Plus(DemandOfRequests(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})))
	}
	return sum
}

// DemandOfRequests returns the demand of one pod with these resource requests.
func DemandOfRequests(requests apiv1.ResourceList) Demand {
	amount := func(name apiv1.ResourceName) float64 {
		quantity := requests[name]
		return quantity.AsApproximateFloat64()
	}
	return Demand{
		GPUs: amount(gpu.ResourceNvidiaGPU) + amount(api.ResourceTopologyGPU) +
			max(amount(api.ResourceGPUCount), amount(api.ResourceGPUMemory)/gpuMemoryGiB),
		CPUs:      amount(apiv1.ResourceCPU),
		MemoryGiB: amount(apiv1.ResourceMemory) / (1 << 30),
	}
}

// Plus returns the sum of both demands.
func (d Demand) Plus(other Demand) Demand {
	return Demand{GPUs: d.GPUs + other.GPUs, CPUs: d.CPUs + other.CPUs, MemoryGiB: d.MemoryGiB + other.MemoryGiB}
}
