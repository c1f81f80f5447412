package template

import (
	"maps"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Offers returns whether the list has more than zero of the resource.
func Offers(list apiv1.ResourceList, name apiv1.ResourceName) bool {
	quantity := list[name]
	return quantity.Sign() > 0
}

// OffersGPUs returns whether the Node has GPUs of NVIDIA, whole or shared.
func OffersGPUs(node *apiv1.Node) bool {
	list := node.Status.Allocatable
	return Offers(list, api.ResourceGPU) || Offers(list, api.ResourceGPUMemory) || Offers(list, api.ResourceTopologyGPU)
}

// MaxPods returns how many pods with these requests fit on the Node when it is empty; 0 for nil.
func MaxPods(node *apiv1.Node, requests apiv1.ResourceList) int {
	if node == nil {
		return 0
	}
	most := node.Status.Allocatable.Pods().Value()
	for name, wanted := range requests {
		if wanted.Sign() <= 0 {
			continue
		}
		offered := node.Status.Allocatable[name]
		most = min(most, offered.MilliValue()/max(wanted.MilliValue(), 1))
	}
	return int(max(most, 0))
}

// Intersect reduces the Node to what it has in common with the other: equal labels, equal architecture, and the smaller of
// each resource. Without that, a pod that selects one of several instance types, or that fits only the largest of them,
// would have nodes bought without end that it does not fit on.
func Intersect(node, other *apiv1.Node) {
	maps.DeleteFunc(node.Labels, func(key, value string) bool { return other.Labels[key] != value })
	if node.Status.NodeInfo.Architecture != other.Status.NodeInfo.Architecture {
		node.Status.NodeInfo.Architecture = ""
	}
	reduce(node.Status.Capacity, other.Status.Capacity)
	reduce(node.Status.Allocatable, other.Status.Allocatable)
}

// reduce leaves the smaller quantity of each resource, and removes resources that the other list does not have.
func reduce(resources, other apiv1.ResourceList) {
	for name, quantity := range resources {
		switch least, has := other[name]; {
		case !has:
			delete(resources, name)
		case least.Cmp(quantity) < 0:
			resources[name] = least
		}
	}
}
