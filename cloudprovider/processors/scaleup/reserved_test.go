package scaleup

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// fourCPUs is of a pod that fits four times on a node of offer, and three times beside a GPU pod of the same size.
func fourCPUs(pod *apiv1.Pod) { testutil.Requesting("cpu", "4")(pod) }

func TestPodsBuyGPUNodesOnlyWhereTheyAskForGPUs(t *testing.T) {
	gpuOffer, cpuOffer := offer("gpu", 4, "1"), offer("cpu", 2, "0")
	allowed := gpuOffer
	allowed.forCPUPods = true
	cheap := gpuOffer
	cheap.price = 0.1
	train := testutil.NewPods(1, "train", fourCPUs)
	batch := testutil.NewPods(200, "batch", testutil.WithoutGPU, fourCPUs, testutil.ReplicatedBy("batch"))
	for name, test := range map[string]struct {
		of     catalogue
		gangs  missing
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
			pods:   slices.Concat(testutil.NewPods(200, "urgent", testutil.WithoutGPU, fourCPUs, testutil.OfPriority(1000), testutil.ReplicatedBy("urgent")), train),
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
			of: catalogue{"gpu": cheap, "cpu": cpuOffer}, gangs: missing{"ml/spark": 8},
			pods:   testutil.NewPods(8, "spark", testutil.WithoutGPU, fourCPUs, testutil.InGang("spark", 8)),
			bought: map[string]int{"cpu": 2},
		},
		"a gang of GPU workers has its launcher with it": {
			of: catalogue{"gpu": gpuOffer, "cpu": cpuOffer}, gangs: missing{"ml/mpi": 3},
			pods:   append(testutil.NewPods(2, "worker", fourCPUs, testutil.InGang("mpi", 3)), testutil.NewPod("launcher", testutil.WithoutGPU, fourCPUs, testutil.InGang("mpi", 3))),
			bought: map[string]int{"gpu": 2},
		},
	} {
		for expander, byPrice := range map[string]bool{"least-price": true, "another expander": false} {
			t.Run(name+", with "+expander, func(t *testing.T) {
				core := newRealCore(t, test.of, test.gangs, byPrice)
				left, _ := core.settle(slices.Clone(test.pods))
				assert.Equal(t, test.bought, core.bought)
				assert.Len(t, left, test.left)
			})
		}
	}
}

func TestCPUPodIsToldWhyNoGPUNodeIsBoughtForIt(t *testing.T) {
	small := testutil.NewNode("small", "cpu", "2", "memory", "4Gi", "pods", "64")
	core := newRealCore(t, catalogue{"gpu-a": offer("gpu-a", 4, "1"), "gpu-b": offer("gpu-b", 4, "8"), "cpu": {price: 1, max: 9, node: small}}, missing{}, true)
	_, result := core.loop(testutil.NewPods(2, "batch", testutil.WithoutGPU, fourCPUs))
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
