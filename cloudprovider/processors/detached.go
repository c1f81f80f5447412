package processors

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
)

// detached returns copies of the pods that have lists of containers of their own. Where core compares pods it empties
// fields of their containers in place (utils.PodSpecSemanticallyEqual), and these are the informers', which others read.
func detached(pods []*apiv1.Pod) []*apiv1.Pod {
	copies := make([]*apiv1.Pod, 0, len(pods))
	for _, pod := range pods {
		own := *pod
		own.Spec.Containers = slices.Clone(pod.Spec.Containers)
		own.Spec.InitContainers = slices.Clone(pod.Spec.InitContainers)
		copies = append(copies, &own)
	}
	return copies
}
