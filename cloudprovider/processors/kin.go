package processors

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
)

// withKin adds to the pods that the scheduler has found no node for the waiting ones that are like them and that it
// has not got to. It takes the pods of a big job one by one, for seconds; core would buy for as many as it has done in
// each loop, piece by piece. Those that do fit a node are filtered out with the others.
func withKin(unschedulable, waiting []*apiv1.Pod) []*apiv1.Pod {
	kinds, listed := sets.New[string](), sets.New[types.UID]()
	for _, pod := range unschedulable {
		listed.Insert(pod.UID)
		if kind := kindOf(pod); kind != "" {
			kinds.Insert(kind)
		}
	}
	if kinds.Len() == 0 {
		return unschedulable
	}
	for _, pod := range waiting {
		if !listed.Has(pod.UID) && mayBeListed(pod) && kinds.Has(kindOf(pod)) {
			unschedulable = append(unschedulable, pod)
		}
	}
	return unschedulable
}

// kindOf is alike for pods of which the scheduler would say the same, as far as GPUs go; empty for a pod that asks for
// none, and for one that has a ProvisioningRequest to wait for.
func kindOf(pod *apiv1.Pod) string {
	demand := gpuDemand(pod)
	if demand == "" || isProvisioningRequest(pod) {
		return ""
	}
	return fmt.Sprintf("%s|%s|%d", demand, pod.Spec.SchedulerName, ptr.Deref(pod.Spec.Priority, 0))
}

// mayBeListed says whether the scheduler is still to look at the pod, or has found no node since core listed the pods.
// One that is gated is not for it to look at, and one that it failed on may fit.
func mayBeListed(pod *apiv1.Pod) bool {
	_, condition := podutil.GetPodCondition(&pod.Status, apiv1.PodScheduled)
	return len(pod.Spec.SchedulingGates) == 0 && (condition == nil || condition.Status == apiv1.ConditionFalse &&
		(condition.Reason == "" || condition.Reason == apiv1.PodReasonUnschedulable))
}
