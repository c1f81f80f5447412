package scaleup

import (
	"cmp"
	"fmt"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
)

// The names of the batches that are no gangs. The name of a gang contains a slash.
const (
	// gpuPods are all pods that request GPUs and belong to no gang, and all pods of ProvisioningRequests, which have an
	// orchestrator of their own.
	gpuPods = "gpu-pods"
	// cpuPods are all other pods without a gang. Of either, those that say what their time is worth are batches of their own, one for each
	// value. If they were bought for together with GPU pods, they would be placed where
	// those are: on nodes with GPUs.
	cpuPods = "cpu-pods"
)

// podBatch is pods that are bought for together.
type podBatch struct {
	// name is that of the gang, or begins with gpuPods or cpuPods.
	name string
	pods []*apiv1.Pod
	// minimum is how many of the pods a gang needs. It is 0 for a batch that is no gang.
	minimum int
	// gpu is whether any of the pods requests a GPU.
	gpu bool
}

func (batch podBatch) isGang() bool { return batch.minimum > 0 }

// batches splits the pods into batches. The order is: those whose last turn was the longest ago, then those that request GPUs, then
// by creation. GPU nodes are bought before CPU nodes, so that CPU pods fill what GPU pods leave of them.
//
// Batches of which core has filtered out too many pods since they were admitted, for example because they are younger than
// --new-pod-scale-up-delay, are returned as partial: a gang would be bought for in pieces.
func (g *Gangs) batches(unschedulable []*apiv1.Pod) (batches, partial []podBatch) {
	byName := map[string]*podBatch{}
	for _, pod := range unschedulable {
		name, missing, gpu := g.batchOf(pod)
		batch := byName[name]
		if batch == nil {
			batch = &podBatch{name: name, minimum: missing}
			byName[name] = batch
		}
		batch.pods = append(batch.pods, pod)
		batch.gpu = batch.gpu || gpu
	}
	for _, batch := range byName {
		if len(batch.pods) < batch.minimum {
			klog.V(2).InfoS("Not buying for a gang, some of its pods may not be bought for yet", "gang", batch.name, "missing", batch.minimum, "pods", len(batch.pods))
			partial = append(partial, *batch)
			continue
		}
		slices.SortStableFunc(batch.pods, byCreation)
		batches = append(batches, *batch)
	}
	for name := range g.lastTurn {
		if byName[name] == nil {
			delete(g.lastTurn, name)
			delete(g.told, name)
		}
	}
	slices.SortFunc(batches, func(a, b podBatch) int {
		return cmp.Or(cmp.Compare(g.lastTurn[a.name], g.lastTurn[b.name]), gpuFirst(a, b), byCreation(a.pods[0], b.pods[0]), cmp.Compare(a.name, b.name))
	})
	return batches, partial
}

// batchOf returns the name of the pod's batch, how many pods it needs at once if it is a gang, and whether the pod requests a GPU.
func (g *Gangs) batchOf(pod *apiv1.Pod) (name string, missing int, gpu bool) {
	gpu = processors.RequestsGPU(pod)
	if processors.IsProvisioningRequest(pod) {
		return gpuPods, 0, gpu
	}
	if gang, missing := g.config.Members.Missing(pod); gang != "" {
		return gang, missing, gpu
	}
	name = cpuPods
	if gpu {
		name = gpuPods
	}
	if value := pricing.ValueOfTime(pod); value != nil {
		name = fmt.Sprintf("%s at %g an hour", name, *value) // another offering may cost less for them than for others
	}
	return name, 0, gpu
}

func gpuFirst(a, b podBatch) int {
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

func podsOf(batches []podBatch) []*apiv1.Pod {
	var pods []*apiv1.Pod
	for _, batch := range batches {
		pods = append(pods, batch.pods...)
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
