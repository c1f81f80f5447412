package podlist

import (
	"fmt"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// withEquivalent adds the equivalent pending pods to those that the scheduler could not place. The scheduler takes the pods of
// a big job one by one, for seconds. Core would buy, in each loop, for as many as it has got to, and so piece by piece. The
// inner chain filters out those that do fit a node.
func withEquivalent(unschedulable, waiting []*apiv1.Pod) []*apiv1.Pod {
	keys, listed := sets.New[string](), sets.New[types.UID]()
	for _, pod := range unschedulable {
		listed.Insert(pod.UID)
		if key := schedulingKey(pod); key != "" {
			keys.Insert(key)
		}
	}
	if keys.Len() == 0 {
		return unschedulable
	}
	for _, pod := range waiting {
		if !listed.Has(pod.UID) && mayBeUnschedulable(pod) && keys.Has(schedulingKey(pod)) {
			unschedulable = append(unschedulable, pod)
		}
	}
	return unschedulable
}

// schedulingKey returns a key that is equal for pods of which the scheduler would decide the same, as far as GPUs go. It is
// empty for a pod that requests no GPU, and for one that waits for its ProvisioningRequest.
func schedulingKey(pod *apiv1.Pod) string {
	demand := processors.GPUDemand(pod)
	if demand == "" || processors.IsProvisioningRequest(pod) {
		return ""
	}
	return fmt.Sprintf("%s|%s|%d", demand, pod.Spec.SchedulerName, ptr.Deref(pod.Spec.Priority, 0))
}

// mayBeUnschedulable returns whether the scheduler has not got to the pod yet, or has found no node for it since core listed
// the pods. It returns false for a gated pod, which the scheduler does not look at, and for one on which the scheduler has
// failed for another reason, which may fit.
func mayBeUnschedulable(pod *apiv1.Pod) bool {
	_, condition := podutil.GetPodCondition(&pod.Status, apiv1.PodScheduled)
	return len(pod.Spec.SchedulingGates) == 0 && (condition == nil || condition.Status == apiv1.ConditionFalse &&
		(condition.Reason == "" || condition.Reason == apiv1.PodReasonUnschedulable))
}

// copied returns copies of the pods with container lists of their own. Where core compares pods it empties fields of their
// containers in place (utils.PodSpecSemanticallyEqual), and these pods belong to the informers.
func copied(pods []*apiv1.Pod) []*apiv1.Pod {
	copies := make([]*apiv1.Pod, 0, len(pods))
	for _, pod := range pods {
		own := *pod
		own.Spec.Containers = slices.Clone(pod.Spec.Containers)
		own.Spec.InitContainers = slices.Clone(pod.Spec.InitContainers)
		copies = append(copies, &own)
	}
	return copies
}
