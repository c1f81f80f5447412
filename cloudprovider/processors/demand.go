package processors

import (
	"fmt"
	"math"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// isGPU knows whole and shared GPUs of ACK, and what other device plugins call GPUs and parts of them: nvidia.com/gpu.shared,
// nvidia.com/mig-1g.10gb, amd.com/gpu. The maker alone does not say: nvidia.com/hostdev is a network card.
func isGPU(name apiv1.ResourceName) bool {
	if name == api.ResourceGPU || isSharedGPU(name) {
		return true
	}
	domain, device, _ := strings.Cut(string(name), "/")
	return device == "gpu" || domain == "nvidia.com" && (strings.HasPrefix(device, "gpu") || strings.HasPrefix(device, "mig-"))
}

func isSharedGPU(name apiv1.ResourceName) bool {
	return strings.HasPrefix(string(name), api.ResourceGPUPrefixACK)
}

// asksForGPU says whether the pod asks for a GPU. One that claims devices by Dynamic Resource Allocation may do so: what
// they are, only their driver knows.
func asksForGPU(pod *apiv1.Pod) bool {
	asks := func(container apiv1.Container) bool {
		for name, quantity := range container.Resources.Requests {
			if isGPU(name) && !quantity.IsZero() {
				return true
			}
		}
		return false
	}
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
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

// demand is what pods ask for together.
type demand struct {
	pods     int
	requests *schedulerframework.Resource
	// measured is the resource by which prices are compared: GPUs where any are asked for, else CPU. It is empty where
	// shared GPUs are asked for, which come in two units.
	measured apiv1.ResourceName
	each     map[types.UID]apiv1.ResourceList
}

func demandOf(pods []*apiv1.Pod) demand {
	d := demand{
		pods: len(pods), requests: &schedulerframework.Resource{}, measured: apiv1.ResourceCPU,
		each: make(map[types.UID]apiv1.ResourceList, len(pods)),
	}
	for _, pod := range pods {
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		d.each[pod.UID] = requests
		d.requests.Add(requests)
	}
	if d.requests.ScalarResources[api.ResourceGPU] > 0 {
		d.measured = api.ResourceGPU
	}
	for name, quantity := range d.requests.ScalarResources {
		if isSharedGPU(name) && quantity > 0 {
			d.measured = ""
		}
	}
	return d
}

// unitsOf is how much of the measured resource some of the pods ask for.
func (d demand) unitsOf(pods []*apiv1.Pod) float64 {
	var sum int64
	for _, pod := range pods {
		quantity := d.each[pod.UID][d.measured]
		if d.measured == apiv1.ResourceCPU {
			sum += quantity.MilliValue()
		} else {
			sum += quantity.Value()
		}
	}
	return float64(sum)
}

// units is how much of the measured resource a new node leaves to pods.
func (d demand) units(template *framework.NodeInfo) float64 {
	if template == nil {
		return 0
	}
	node := template.ToScheduler()
	return amount(node.Allocatable, d.measured) - amount(node.Requested, d.measured)
}

func amount(resources *schedulerframework.Resource, name apiv1.ResourceName) float64 {
	switch name {
	case "":
		return 0
	case apiv1.ResourceCPU:
		return float64(resources.MilliCPU)
	default:
		return float64(resources.ScalarResources[name])
	}
}

// nodes is the least number of nodes like the template that the demand could do with; infinite where the template
// lacks something, or there is none.
func (d demand) nodes(template *framework.NodeInfo) float64 {
	if template == nil {
		return math.Inf(1)
	}
	node := template.ToScheduler()
	has, taken := node.Allocatable, node.Requested
	nodes := 1.0
	consider := func(want, has, taken int64) {
		switch free := has - taken; {
		case want <= 0:
		case free <= 0:
			nodes = math.Inf(1)
		default:
			nodes = max(nodes, math.Ceil(float64(want)/float64(free)))
		}
	}
	consider(d.requests.MilliCPU, has.MilliCPU, taken.MilliCPU)
	consider(d.requests.Memory, has.Memory, taken.Memory)
	consider(d.requests.EphemeralStorage, has.EphemeralStorage, taken.EphemeralStorage)
	consider(int64(d.pods), int64(has.AllowedPodNumber), int64(len(node.Pods)))
	for name, want := range d.requests.ScalarResources {
		consider(want, has.ScalarResources[name], taken.ScalarResources[name])
	}
	return nodes
}
