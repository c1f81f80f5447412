package processors

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// GPUPodsOnly is why an offering is not bought for pods that request no GPU.
var GPUPodsOnly = reasons.New(reasons.GPUPodsOnly, "Tag a pool "+api.TagBuyForCPUPods+"=true, or add a pool without GPUs.",
	"bought only for pods that ask for a GPU (their pools have no tag %s=true)", api.TagBuyForCPUPods)

// IsGPU returns whether the resource is a GPU or a part of one: whole and shared GPUs of ACK, and the resources of other
// device plugins, such as nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb and amd.com/gpu. The vendor's domain alone does not
// decide: nvidia.com/hostdev is a network card.
func IsGPU(name apiv1.ResourceName) bool {
	if name == api.ResourceGPU || IsSharedGPU(name) {
		return true
	}
	domain, device, _ := strings.Cut(string(name), "/")
	return device == "gpu" || domain == "nvidia.com" && (strings.HasPrefix(device, "gpu") || strings.HasPrefix(device, "mig-"))
}

// IsSharedGPU returns whether the resource is one of ACK's own for GPUs, such as aliyun.com/gpu-mem.
func IsSharedGPU(name apiv1.ResourceName) bool {
	return strings.HasPrefix(string(name), api.ResourceGPUPrefixACK)
}

// MIGSlices returns how many of a GPU's slices a MIG device of the resource has, such as 3 of nvidia.com/mig-3g.20gb; 0 for any other resource.
// Source: https://docs.nvidia.com/datacenter/cloud-native/kubernetes/latest (mixed strategy).
func MIGSlices(name apiv1.ResourceName) (count int) {
	if _, err := fmt.Sscanf(string(name), "nvidia.com/mig-%dg.", &count); err != nil {
		return 0
	}
	return count
}

// RequestsGPU returns whether the pod requests a GPU. It is true for every pod that claims devices by Dynamic Resource
// Allocation: only the driver knows whether they are GPUs.
func RequestsGPU(pod *apiv1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || RequestsGPUOfNode(pod)
}

// RequestsGPUOfNode returns whether the pod requests a GPU as a resource of its node, as device plugins offer it.
func RequestsGPUOfNode(pod *apiv1.Pod) bool {
	requests := func(container apiv1.Container) bool {
		for name, quantity := range container.Resources.Requests {
			if IsGPU(name) && !quantity.IsZero() {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, requests) || slices.ContainsFunc(pod.Spec.InitContainers, requests)
}

// OffersGPU returns whether any GPU resource is allocatable on the Node.
func OffersGPU(node *apiv1.Node) bool {
	for name, quantity := range node.Status.Allocatable {
		if IsGPU(name) && !quantity.IsZero() {
			return true
		}
	}
	return false
}

// GPUDemand returns a key that is equal for pods with equal GPU requests and equal node selectors. It is empty for a pod
// that requests no GPU. Namespace and owner are not part of the key, because pods of several jobs pack onto the same nodes.
func GPUDemand(pod *apiv1.Pod) string {
	var parts []string
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if IsGPU(name) && !quantity.IsZero() {
			parts = append(parts, fmt.Sprintf("%s=%s", name, quantity.String()))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	for key, value := range pod.Spec.NodeSelector {
		parts = append(parts, fmt.Sprintf("%s:%s", key, value))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
