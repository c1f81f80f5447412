package podlist

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
)

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
