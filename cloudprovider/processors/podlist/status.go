package podlist

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
)

// StatusFilter hides, from the processor that records Events, the pods that a loop added without a user having created them as
// pending: the Event TriggeredScaleUp on a running pod, or NotTriggerScaleUp on one that does not exist, would only confuse.
type StatusFilter struct {
	next     status.ScaleUpStatusProcessor
	injected []func(*apiv1.Pod) bool
}

var _ status.ScaleUpStatusProcessor = (*StatusFilter)(nil)

// NewStatusFilter returns a processor that calls next. A pod for which any of the functions returns true was added.
func NewStatusFilter(next status.ScaleUpStatusProcessor, injected ...func(*apiv1.Pod) bool) *StatusFilter {
	return &StatusFilter{next: next, injected: injected}
}

// Process passes on the status without the added pods.
func (f *StatusFilter) Process(ctx *cacontext.AutoscalingContext, result *status.ScaleUpStatus) {
	result.PodsTriggeredScaleUp = f.without(result.PodsTriggeredScaleUp)
	result.PodsAwaitEvaluation = f.without(result.PodsAwaitEvaluation)
	var remain []status.NoScaleUpInfo
	for _, info := range result.PodsRemainUnschedulable {
		if !f.isInjected(info.Pod) {
			remain = append(remain, info)
		}
	}
	result.PodsRemainUnschedulable = remain
	f.next.Process(ctx, result)
}

// without returns a new list: those of a status share memory with others of the loop.
func (f *StatusFilter) without(pods []*apiv1.Pod) []*apiv1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), f.isInjected)
}

func (f *StatusFilter) isInjected(pod *apiv1.Pod) bool {
	return slices.ContainsFunc(f.injected, func(injected func(*apiv1.Pod) bool) bool { return injected(pod) })
}

// CleanUp cleans up the next processor.
func (f *StatusFilter) CleanUp() { f.next.CleanUp() }
