package processors

import (
	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/podlistprocessor"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
)

// NewPodListProcessor makes core's chain of processors (podlistprocessor.NewDefaultPodListProcessor), but for the one that
// places pods on nodes that exist or are on their way: GPU pods get their places first.
func NewPodListProcessor() *pods.CombinedPodListProcessor {
	return pods.NewCombinedPodListProcessor([]pods.PodListProcessor{
		podlistprocessor.NewClearTPURequestsPodListProcessor(),
		podlistprocessor.NewFilterOutExpendablePodListProcessor(),
		podlistprocessor.NewCurrentlyDrainedNodesPodListProcessor(),
		newGPUPodsFirst(),
		podlistprocessor.NewFilterOutDaemonSetPodListProcessor(),
	})
}

// gpuPodsFirst places GPU pods before all others, whatever their priority. CPU pods that were placed first would fill the
// node that was bought for a GPU pod, one more would be bought for it in the next loop, and so on until all CPU pods have
// places on GPU nodes.
type gpuPodsFirst struct {
	// Each remembers from loop to loop where its pods went, and forgets the others.
	gpu, others pods.PodListProcessor
}

func newGPUPodsFirst() *gpuPodsFirst {
	return &gpuPodsFirst{
		gpu:    podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere),
		others: podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere),
	}
}

// Process returns the pods for which there is no place.
func (p *gpuPodsFirst) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	var gpu, others []*apiv1.Pod
	for _, pod := range unschedulable {
		if asksForGPU(pod) {
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

// CleanUp is called when the autoscaler ends.
func (p *gpuPodsFirst) CleanUp() {
	p.gpu.CleanUp()
	p.others.CleanUp()
}
