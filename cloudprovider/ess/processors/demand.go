package processors

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

const (
	resourceGPU = apiv1.ResourceName("nvidia.com/gpu")
	// resourceGPUMem is what a node offers instead of resourceGPU where GPUs are shared between pods.
	resourceGPUMem = apiv1.ResourceName("aliyun.com/gpu-mem")
	// sharedGPUPrefix begins the names of all resources of ACK's shared-GPU scheduling.
	sharedGPUPrefix = "aliyun.com/gpu"
)

func isGPU(name apiv1.ResourceName) bool {
	return name == resourceGPU || strings.HasPrefix(string(name), sharedGPUPrefix)
}

// gpuDemand tells pods with different GPU needs apart: GPU resources and node selector. It is empty for a pod that
// asks for no GPU. Namespace and owner do not matter, because pods of several jobs pack onto the same nodes.
func gpuDemand(pod *apiv1.Pod) string {
	var parts []string
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if isGPU(name) && !quantity.IsZero() {
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
