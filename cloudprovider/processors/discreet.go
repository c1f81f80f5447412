package processors

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
)

// Discreet keeps from the processor behind it, which writes Events, the pods that a loop took in without a user having
// asked for them: "pod triggered scale-up" on a pod that runs, or "didn't trigger" on one that does not exist, would
// only confuse.
type Discreet struct {
	next     status.ScaleUpStatusProcessor
	injected []func(*apiv1.Pod) bool
}

var _ status.ScaleUpStatusProcessor = (*Discreet)(nil)

// NewDiscreet puts itself in front of another processor. A pod for which any of the functions is true was injected.
func NewDiscreet(next status.ScaleUpStatusProcessor, injected ...func(*apiv1.Pod) bool) *Discreet {
	return &Discreet{next: next, injected: injected}
}

// Process hands on the status without injected pods.
func (d *Discreet) Process(ctx *cacontext.AutoscalingContext, result *status.ScaleUpStatus) {
	result.PodsTriggeredScaleUp = d.without(result.PodsTriggeredScaleUp)
	result.PodsAwaitEvaluation = d.without(result.PodsAwaitEvaluation)
	var remain []status.NoScaleUpInfo
	for _, info := range result.PodsRemainUnschedulable {
		if !d.isInjected(info.Pod) {
			remain = append(remain, info)
		}
	}
	result.PodsRemainUnschedulable = remain
	d.next.Process(ctx, result)
}

// without makes a list of its own: the lists of a status share memory with others of the loop.
func (d *Discreet) without(pods []*apiv1.Pod) []*apiv1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), d.isInjected)
}

func (d *Discreet) isInjected(pod *apiv1.Pod) bool {
	return slices.ContainsFunc(d.injected, func(injected func(*apiv1.Pod) bool) bool { return injected(pod) })
}

// CleanUp is called when the autoscaler ends.
func (d *Discreet) CleanUp() { d.next.CleanUp() }
