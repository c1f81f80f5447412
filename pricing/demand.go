package pricing

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/utils/gpu"
	resourcehelper "k8s.io/component-helpers/resource"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// gpuMemoryGiB is how much requested GPU memory counts as one GPU. It must not depend on the node, or the same pods
// would be worth more on one node than on another.
const gpuMemoryGiB = 16

// demand is what pods ask for. For whoever asks for GPUs it is those that cost.
type demand struct {
	gpus, cpu, memoryGiB float64
}

func demandOf(pods ...*apiv1.Pod) demand {
	var d demand
	for _, pod := range pods {
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		amount := func(name apiv1.ResourceName) float64 {
			quantity := requests[name]
			return quantity.AsApproximateFloat64()
		}
		d.gpus += amount(gpu.ResourceNvidiaGPU) + max(amount(api.ResourceGPUCount), amount(api.ResourceGPUMemory)/gpuMemoryGiB)
		d.cpu += amount(apiv1.ResourceCPU)
		d.memoryGiB += amount(apiv1.ResourceMemory) / (1 << 30)
	}
	return d
}
