package scaleup

import (
	"cmp"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// The names of the units that are no gangs. The name of a gang contains a slash.
const (
	// gpuPods are all pods that request GPUs and belong to no gang, and all pods of ProvisioningRequests, which have an
	// orchestrator of their own.
	gpuPods = "gpu-pods"
	// cpuPods are all other pods without a gang. If they were bought for together with GPU pods, they would be placed where
	// those are: on nodes with GPUs.
	cpuPods = "cpu-pods"
)

// unit is pods that are bought for together.
type unit struct {
	// name is that of the gang, gpuPods or cpuPods.
	name string
	pods []*apiv1.Pod
	// minimum is how many of the pods a gang needs. It is 0 for a unit that is no gang.
	minimum int
	// gpu is whether any of the pods requests a GPU.
	gpu bool
}

func (u unit) isGang() bool { return u.minimum > 0 }

// units splits the pods into units. The order is: those whose last turn was the longest ago, then those that request GPUs, then
// by creation. GPU nodes are bought before CPU nodes, so that CPU pods fill what GPU pods leave of them.
//
// Units of which core has filtered out too many pods since they were admitted, for example because they are younger than
// --new-pod-scale-up-delay, are returned as partial: a gang would be bought for in pieces.
func (g *Gangs) units(unschedulable []*apiv1.Pod) (units, partial []unit) {
	byName := map[string]*unit{}
	for _, pod := range unschedulable {
		name, missing, gpu := g.unitOf(pod)
		u := byName[name]
		if u == nil {
			u = &unit{name: name, minimum: missing}
			byName[name] = u
		}
		u.pods = append(u.pods, pod)
		u.gpu = u.gpu || gpu
	}
	for _, u := range byName {
		if len(u.pods) < u.minimum {
			klog.V(2).InfoS("Not buying for a gang, some of its pods may not be bought for yet", "gang", u.name, "missing", u.minimum, "pods", len(u.pods))
			partial = append(partial, *u)
			continue
		}
		slices.SortStableFunc(u.pods, byCreation)
		units = append(units, *u)
	}
	for name := range g.lastTurn {
		if byName[name] == nil {
			delete(g.lastTurn, name)
			delete(g.told, name)
		}
	}
	slices.SortFunc(units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(g.lastTurn[a.name], g.lastTurn[b.name]), gpuFirst(a, b), byCreation(a.pods[0], b.pods[0]), cmp.Compare(a.name, b.name))
	})
	return units, partial
}

// unitOf returns the name of the pod's unit, how many pods it needs at once if it is a gang, and whether the pod requests a GPU.
func (g *Gangs) unitOf(pod *apiv1.Pod) (name string, missing int, gpu bool) {
	gpu = processors.RequestsGPU(pod)
	if processors.IsProvisioningRequest(pod) {
		return gpuPods, 0, gpu
	}
	if gang, missing := g.config.Members.Missing(pod); gang != "" {
		return gang, missing, gpu
	}
	if gpu {
		return gpuPods, 0, gpu
	}
	return cpuPods, 0, gpu
}

func gpuFirst(a, b unit) int {
	switch {
	case a.gpu == b.gpu:
		return 0
	case a.gpu:
		return -1
	}
	return 1
}

func byCreation(a, b *apiv1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func podsOf(units []unit) []*apiv1.Pod {
	var pods []*apiv1.Pod
	for _, u := range units {
		pods = append(pods, u.pods...)
	}
	return pods
}

// without returns the pods that are not among the others.
func without(pods, others []*apiv1.Pod) []*apiv1.Pod {
	known := sets.New[types.UID]()
	for _, pod := range others {
		known.Insert(pod.UID)
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *apiv1.Pod) bool { return known.Has(pod.UID) })
}
