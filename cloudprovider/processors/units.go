package processors

import (
	"cmp"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// The units that are no gangs. The name of a gang has a slash in it.
const (
	// gpuUnit is all pods that ask for GPUs, and those of ProvisioningRequests, which have an orchestrator of their own.
	gpuUnit = "gpu-pods"
	// cpuUnit is all other pods. Bought for together with GPU pods, they would go wherever those go: a node with a GPU.
	cpuUnit = "cpu-pods"
)

// unit is what is bought for in one piece.
type unit struct {
	// name is that of the gang, gpuUnit or cpuUnit.
	name string
	pods []*apiv1.Pod
	// minimum is how many of the pods a gang needs; it would take them all. It is 0 for a unit that is no gang.
	minimum int
	// gpu says whether any of the pods asks for a GPU.
	gpu bool
}

func (u unit) isGang() bool { return u.minimum > 0 }

// units splits the pods, those whose turn is longest ago first, then those that ask for GPUs, then in the order of their
// creation. GPU nodes come before CPU nodes so that CPU pods fill what GPU pods leave of them.
//
// Left out are gangs of which core has hidden pods since [Hold] released them, such as those that are too young for
// --new-pod-scale-up-delay: with the rest of them alone a gang would be bought in pieces.
func (o *GangOrchestrator) units(unschedulable []*apiv1.Pod) (units, short []unit) {
	byName := map[string]*unit{}
	for _, pod := range unschedulable {
		name, missing, gpu := o.unitOf(pod)
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
			klog.V(2).Infof("Not buying for gang %s yet: of the %d pods that it needs places for, %d may be bought for now", u.name, u.minimum, len(u.pods))
			short = append(short, *u)
			continue
		}
		slices.SortStableFunc(u.pods, byCreation)
		units = append(units, *u)
	}
	for name := range o.lastTried {
		if byName[name] == nil {
			delete(o.lastTried, name)
		}
	}
	slices.SortFunc(units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(o.lastTried[a.name], o.lastTried[b.name]), gpuFirst(a, b), byCreation(a.pods[0], b.pods[0]), cmp.Compare(a.name, b.name))
	})
	return units, short
}

// unitOf returns the name of the pod's unit, how many pods it needs at once if it is a gang, and whether the pod asks for a GPU.
func (o *GangOrchestrator) unitOf(pod *apiv1.Pod) (name string, missing int, gpu bool) {
	gpu = asksForGPU(pod)
	if isProvisioningRequest(pod) {
		return gpuUnit, 0, gpu
	}
	if gang, missing := o.gangs.Missing(pod); gang != "" {
		return gang, missing, gpu
	}
	if gpu {
		return gpuUnit, 0, gpu
	}
	return cpuUnit, 0, gpu
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
