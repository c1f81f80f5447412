package processors

import (
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// GPUShare returns which part of a machine's GPUs is requested, where its node offers the allocatable resources. A node offers its GPUs by one
// resource or another, and each of them stands for all, but for those that MIG has divided: what is requested of several counts as the most.
func GPUShare(requests, allocatable apiv1.ResourceList, gpus float64) float64 {
	part := 0.0
	for resource := range requests {
		if IsGPU(resource) && MIGSlices(resource) == 0 {
			part = max(part, ResourceShare(resource, requests, allocatable))
		}
	}
	divided := slicesIn(allocatable)
	if divided == 0 {
		return part
	}
	whole := 0.0 // the part of the GPUs that MIG has not divided
	if gpus > 0 {
		undivided := allocatable[api.ResourceGPU]
		whole = min(1, undivided.AsApproximateFloat64()/gpus)
	}
	return part*whole + slicesIn(requests)/divided*(1-whole)
}

// ResourceShare returns which part of the allocatable amount of a resource is requested, 0 where there is none of it.
func ResourceShare(resource apiv1.ResourceName, requests, allocatable apiv1.ResourceList) float64 {
	requested, all := requests[resource], allocatable[resource]
	if all.IsZero() {
		return 0
	}
	return requested.AsApproximateFloat64() / all.AsApproximateFloat64()
}

// slicesIn returns how many slices the MIG devices in the list have together.
func slicesIn(list apiv1.ResourceList) (sum float64) {
	for resource, amount := range list {
		if slices := MIGSlices(resource); slices > 0 {
			sum += float64(slices) * amount.AsApproximateFloat64()
		}
	}
	return sum
}
