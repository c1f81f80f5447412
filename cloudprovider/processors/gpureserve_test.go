package processors

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// fourCPUs is of a pod that fits four times on a node of offer, and three times beside a GPU pod of the same size.
func fourCPUs(pod *apiv1.Pod) { requesting("cpu", "4")(pod) }

func TestPodsBuyGPUNodesOnlyWhereTheyAskForGPUs(t *testing.T) {
	gpuOffer, cpuOffer := offer("gpu", 4, "1"), offer("cpu", 2, "0")
	allowed := gpuOffer
	allowed.forCPUPods = true
	cheap := gpuOffer
	cheap.price = 0.1
	train := newPods(1, "train", fourCPUs)
	batch := newPods(200, "batch", withoutGPU, fourCPUs, replicatedBy("batch"))
	for name, test := range map[string]struct {
		of     catalogue
		gangs  Gangs
		pods   []*apiv1.Pod
		bought map[string]int
		left   int
	}{
		"CPU pods fill the GPU node and buy CPU nodes": {
			of: catalogue{"gpu": gpuOffer, "cpu": cpuOffer}, pods: slices.Concat(batch, train),
			bought: map[string]int{"gpu": 1, "cpu": 50}, // 197 pods, four on a node
		},
		"also where GPU nodes cost less": {
			of: catalogue{"gpu": cheap, "cpu": cpuOffer}, pods: slices.Concat(batch, train),
			bought: map[string]int{"gpu": 1, "cpu": 50},
		},
		"a CPU pod of higher priority does not drive a GPU pod from the node bought for it": {
			of:     catalogue{"gpu": gpuOffer, "cpu": cpuOffer},
			pods:   slices.Concat(newPods(200, "urgent", withoutGPU, fourCPUs, ofPriority(1000), replicatedBy("urgent")), train),
			bought: map[string]int{"gpu": 1, "cpu": 50},
		},
		"without CPU offerings CPU pods have what is left over": {
			of: catalogue{"gpu": gpuOffer}, pods: slices.Concat(batch, train),
			bought: map[string]int{"gpu": 1}, left: 197,
		},
		"without GPU pods nothing is bought of a GPU pool": {
			of: catalogue{"gpu": gpuOffer}, pods: batch,
			bought: map[string]int{}, left: 200,
		},
		"the operator may allow it": {
			of: catalogue{"gpu": allowed}, pods: slices.Concat(batch, train),
			bought: map[string]int{"gpu": 51},
		},
		"what is allowed is still compared by price": {
			of: catalogue{"gpu": allowed, "cpu": cpuOffer}, pods: slices.Concat(batch, train),
			bought: map[string]int{"gpu": 1, "cpu": 50},
		},
		"a gang that asks for no GPU buys none": {
			of: catalogue{"gpu": cheap, "cpu": cpuOffer}, gangs: Gangs{missing: map[string]int{"ml/spark": 8}},
			pods:   newPods(8, "spark", withoutGPU, fourCPUs, inGang("spark", 8)),
			bought: map[string]int{"cpu": 2},
		},
		"a gang of GPU workers has its launcher with it": {
			of: catalogue{"gpu": gpuOffer, "cpu": cpuOffer}, gangs: Gangs{missing: map[string]int{"ml/mpi": 3}},
			pods:   append(newPods(2, "worker", fourCPUs, inGang("mpi", 3)), newPod("launcher", withoutGPU, fourCPUs, inGang("mpi", 3))),
			bought: map[string]int{"gpu": 2},
		},
	} {
		for expander, prune := range map[string]bool{"least-price": true, "another expander": false} {
			t.Run(name+", with "+expander, func(t *testing.T) {
				core := newRealCore(t, test.of, &test.gangs, prune)
				left, _ := core.settle(slices.Clone(test.pods))
				assert.Equal(t, test.bought, core.bought)
				assert.Len(t, left, test.left)
			})
		}
	}
}

func TestPodsThatMayAskForAGPU(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *apiv1.Pod
		asks bool
	}{
		"a whole GPU":                         {newPod("p"), true},
		"memory of a shared GPU":              {newPod("p", withoutGPU, requesting("aliyun.com/gpu-mem", "4")), true},
		"a slice of a GPU":                    {newPod("p", withoutGPU, requesting("nvidia.com/mig-1g.10gb", "1")), true},
		"a GPU of another maker":              {newPod("p", withoutGPU, requesting("amd.com/gpu", "1")), true},
		"a GPU for an init container":         {newPod("p", withoutGPU, initRequesting(api.ResourceGPU, "1")), true},
		"a device that only its driver knows": {newPod("p", withoutGPU, func(pod *apiv1.Pod) { pod.Spec.ResourceClaims = []apiv1.PodResourceClaim{{Name: "device"}} }), true},
		"none":                                {newPod("p", withoutGPU, requesting("cpu", "4")), false},
		"none of it":                          {newPod("p", requesting(api.ResourceGPU, "0")), false},
		"a network interface of its own":      {newPod("p", withoutGPU, requesting("aliyun/member-eni", "1")), false},
		"a network card of a maker of GPUs":   {newPod("p", withoutGPU, requesting("nvidia.com/hostdev", "1")), false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.asks, asksForGPU(test.pod)) })
	}
}

func TestCPUPodIsToldWhyNoGPUNodeIsBoughtForIt(t *testing.T) {
	small := newNode("small", "cpu", "2", "memory", "4Gi", "pods", "64")
	core := newRealCore(t, catalogue{"gpu-a": offer("gpu-a", 4, "1"), "gpu-b": offer("gpu-b", 4, "8"), "cpu": {price: 1, max: 9, node: small}}, &Gangs{}, true)
	_, result := core.loop(newPods(2, "batch", withoutGPU, fourCPUs))
	assert.Equal(t, status.ScaleUpNoOptionsAvailable, result.Result)
	told := core.events(result)
	assert.Len(t, told, 2)
	for _, event := range told {
		assert.Contains(t, event, "NotTriggerScaleUp")
		assert.Contains(t, event, "1 Insufficient cpu")
		assert.Contains(t, event, "2 bought only for pods that ask for a GPU")
		assert.Contains(t, event, "gpu-spot.autoscaling/buy-for-cpu-pods=true", "what the operator could do about it")
	}
}
