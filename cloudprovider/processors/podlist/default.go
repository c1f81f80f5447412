package podlist

import (
	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/podlistprocessor"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// NewDefault returns core's chain of processors (podlistprocessor.NewDefaultPodListProcessor), with one difference: of the pods
// that are placed on existing and upcoming nodes, those come first for which the nodes were bought, and then GPU pods.
func NewDefault(places *Places) *pods.CombinedPodListProcessor {
	return pods.NewCombinedPodListProcessor([]pods.PodListProcessor{
		podlistprocessor.NewClearTPURequestsPodListProcessor(),
		podlistprocessor.NewFilterOutExpendablePodListProcessor(),
		podlistprocessor.NewCurrentlyDrainedNodesPodListProcessor(),
		places,
		newGPUPodsFirst(),
		podlistprocessor.NewFilterOutDaemonSetPodListProcessor(),
	})
}

// gpuPodsFirst places GPU pods before all others, whatever their priority. CPU pods that were placed first would fill the node
// that was bought for a GPU pod. The next loop would buy another one for it, and so on until all CPU pods are on GPU nodes.
type gpuPodsFirst struct {
	// Each processor remembers from loop to loop where its pods went, and forgets all others.
	gpu, others pods.PodListProcessor
}

func newGPUPodsFirst() *gpuPodsFirst {
	return &gpuPodsFirst{
		gpu:    podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere),
		others: podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere),
	}
}

// Process returns the pods that fit no node.
func (p *gpuPodsFirst) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	var gpu, others []*apiv1.Pod
	for _, pod := range unschedulable {
		if processors.RequestsGPU(pod) {
			gpu = append(gpu, pod)
		} else {
			others = append(others, pod)
		}
	}
	left, err := p.gpu.Process(ctx, gpu)
	if err != nil {
		return nil, err
	}
	more, err := p.others.Process(ctx, others)
	if err != nil {
		return nil, err
	}
	return append(left, more...), nil
}

// CleanUp cleans up both processors.
func (p *gpuPodsFirst) CleanUp() {
	p.gpu.CleanUp()
	p.others.CleanUp()
}
