package podlist

import (
	"cmp"
	"fmt"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/podlistprocessor"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
)

// Choices returns how much may be bought for a pod of the node groups: on-demand instances count for more than spot. *spotfirst.Policy implements it.
type Choices interface {
	Choices(groups []cloudprovider.NodeGroup) func(*apiv1.Pod) int
}

// NewDefault returns core's chain of processors (podlistprocessor.NewDefaultPodListProcessor), with two differences. Nominations for nodes that
// are not simulated do not count. Of the pods that are placed on existing and upcoming nodes, those come first for which the nodes were bought, then those that the
// given processors place, and then GPU pods, the most demanding of them before others, and those with more choices before those with fewer. Choices may be nil.
func NewDefault(places *Places, choices Choices, first ...pods.PodListProcessor) *pods.CombinedPodListProcessor {
	return pods.NewCombinedPodListProcessor(slices.Concat([]pods.PodListProcessor{
		podlistprocessor.NewClearTPURequestsPodListProcessor(),
		nominations{},
		podlistprocessor.NewFilterOutExpendablePodListProcessor(),
		podlistprocessor.NewCurrentlyDrainedNodesPodListProcessor(),
		places,
	}, first, []pods.PodListProcessor{
		newGPUPodsFirst(choices),
		podlistprocessor.NewFilterOutDaemonSetPodListProcessor(),
	}))
}

// nominations has a place looked for those pods that the scheduler has nominated for a node which is not in the snapshot, because it is
// reclaiming or out of service. Core adds a nominated pod to any node that exists, and buys nothing for anybody where the snapshot lacks it
// (addPreemptingPodsToSnapshot in core/podlistprocessor/filter_out_expendable.go).
type nominations struct{}

func (nominations) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	unschedulable = slices.Clone(unschedulable)
	for i, pod := range unschedulable {
		if pod.Status.NominatedNodeName == "" {
			continue
		}
		if _, err := ctx.ClusterSnapshot.GetNodeInfo(pod.Status.NominatedNodeName); err != nil {
			unschedulable[i] = pod.DeepCopy()
			unschedulable[i].Status.NominatedNodeName = ""
		}
	}
	return unschedulable, nil
}

func (nominations) CleanUp() {}

// gpuPodsFirst places GPU pods before all others, whatever their priority. CPU pods that were placed first would fill the node
// that was bought for a GPU pod. The next loop would buy another one for it, and so on until all CPU pods are on GPU nodes. In the
// same way small GPU pods could fill nodes that were bought for big ones: Places prevents that, but does not outlive the process.
type gpuPodsFirst struct {
	// Each processor remembers from loop to loop where its pods went, and forgets all others.
	gpu, others pods.PodListProcessor
	choices     Choices
}

func newGPUPodsFirst(choices Choices) *gpuPodsFirst {
	return &gpuPodsFirst{
		choices: choices,
		gpu:     podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere),
		others:  podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere),
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
	fitting, left, err := splitByFreeGPUs(ctx, gpu)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(fitting, p.order(ctx))
	unplaced, err := p.gpu.Process(ctx, fitting)
	if err != nil {
		return nil, err
	}
	left = append(left, unplaced...)
	more, err := p.others.Process(ctx, others)
	if err != nil {
		return nil, err
	}
	return append(left, more...), nil
}

// order returns the order in which GPU pods are placed. A pod for which no on-demand instance may be bought comes after the one for which one
// was: it would take that place otherwise, and another instance would be bought, and so on.
func (p *gpuPodsFirst) order(ctx *cacontext.AutoscalingContext) func(a, b *apiv1.Pod) int {
	if p.choices == nil {
		return demandingFirst
	}
	choices := p.choices.Choices(ctx.CloudProvider.NodeGroups())
	return func(a, b *apiv1.Pod) int {
		return cmp.Or(
			cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)), cmp.Compare(extra(a), extra(b)),
			cmp.Compare(choices(b), choices(a)), demandingFirst(a, b),
		)
	}
}

// splitByFreeGPUs returns the pods for which some node has enough GPUs free, and the others, which fit no node. Core would evaluate each
// of the others on every node, unless another pod of the same controller was found to fit none.
func splitByFreeGPUs(ctx *cacontext.AutoscalingContext, pods []*apiv1.Pod) (fitting, others []*apiv1.Pod, err error) {
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		return nil, nil, fmt.Errorf("list the nodes of the snapshot: %w", err)
	}
	most := int64(0)
	for _, node := range nodes {
		scheduled := node.ToScheduler()
		most = max(most, scheduled.Allocatable.ScalarResources[api.ResourceGPU]-scheduled.Requested.ScalarResources[api.ResourceGPU])
	}
	for _, pod := range pods {
		if gpusOf(pod) > most {
			others = append(others, pod)
		} else {
			fitting = append(fitting, pod)
		}
	}
	return fitting, others, nil
}

// demandingFirst orders GPU pods: those of higher priority first, as core does, then those that request more GPUs, then those that
// name the nodes that they fit.
func demandingFirst(a, b *apiv1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)),
		cmp.Compare(gpusOf(b), gpusOf(a)),
		namedFirst(a, b),
	)
}

// gpusOf returns how many whole GPUs the pod requests.
func gpusOf(pod *apiv1.Pod) int64 {
	gpus := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[api.ResourceGPU]
	return gpus.Value()
}

func namedFirst(a, b *apiv1.Pod) int {
	switch {
	case namesNodes(a) == namesNodes(b):
		return 0
	case namesNodes(a):
		return -1
	}
	return 1
}

func namesNodes(pod *apiv1.Pod) bool {
	affinity := pod.Spec.Affinity
	return len(pod.Spec.NodeSelector) > 0 ||
		affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// CleanUp cleans up both processors.
func (p *gpuPodsFirst) CleanUp() {
	p.gpu.CleanUp()
	p.others.CleanUp()
}
