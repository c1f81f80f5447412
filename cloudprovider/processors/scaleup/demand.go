package scaleup

import (
	"math"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
)

// demand is what the pods of a scale-up request together.
type demand struct {
	pods     int
	requests *schedulerframework.Resource
	// resource is what the cost of an option is divided by, which is that of pricing.Cost: GPUs if any are requested,
	// else CPUs. It is empty if shared GPUs are requested, which have two resources.
	resource apiv1.ResourceName
	each     map[types.UID]pricing.Demand
	// valueOfTime is what the pods say that their time is worth; nil if they do not.
	valueOfTime *float64
}

func demandOf(pods []*apiv1.Pod) demand {
	d := demand{
		pods: len(pods), requests: &schedulerframework.Resource{}, resource: apiv1.ResourceCPU,
		each: make(map[types.UID]pricing.Demand, len(pods)), valueOfTime: pricing.ValueOfTime(pods...),
	}
	for _, pod := range pods {
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		d.each[pod.UID] = pricing.DemandOfRequests(requests)
		d.requests.Add(requests)
	}
	if d.requests.ScalarResources[api.ResourceGPU] > 0 {
		d.resource = api.ResourceGPU
	}
	for name, quantity := range d.requests.ScalarResources {
		if processors.IsSharedGPU(name) && quantity > 0 {
			d.resource = ""
		}
	}
	return d
}

// of returns how much of the resource some of the pods request. It returns false if they request none of it.
func (d demand) of(pods []*apiv1.Pod) (pricing.Demand, bool) {
	var sum pricing.Demand
	for _, pod := range pods {
		sum = sum.Plus(d.each[pod.UID])
	}
	return d.ofResource(sum)
}

// free returns how much of the resource a new node like the template leaves to pods. It returns false if that is nothing.
func (d demand) free(template *framework.NodeInfo) (pricing.Demand, bool) {
	if template == nil {
		return pricing.Demand{}, false
	}
	node := template.ToScheduler()
	return d.ofResource(pricing.Demand{
		GPUs: float64(node.Allocatable.ScalarResources[api.ResourceGPU] - node.Requested.ScalarResources[api.ResourceGPU]),
		CPUs: float64(node.Allocatable.MilliCPU-node.Requested.MilliCPU) / 1000,
	})
}

// ofResource returns the part of a demand that is of the resource.
func (d demand) ofResource(all pricing.Demand) (pricing.Demand, bool) {
	switch d.resource {
	case api.ResourceGPU:
		return pricing.Demand{GPUs: all.GPUs}, all.GPUs > 0
	case apiv1.ResourceCPU:
		return pricing.Demand{CPUs: all.CPUs}, all.CPUs > 0
	}
	return pricing.Demand{}, false
}

// nodes returns the least number of nodes like the template that all pods could fit. It is infinite if the template lacks a
// requested resource, or is nil.
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
