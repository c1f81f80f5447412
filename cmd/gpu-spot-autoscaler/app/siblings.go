package app

import (
	"reflect"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// maxFamilies bounds the controllers whose pods share; beyond it those heard of last do.
const maxFamilies = 10_000

// siblings lets the pods of one controller share in memory what is alike in them and of some size, above all their
// maps. That is why nothing that an informer holds may ever be changed. It is safe for concurrent use.
type siblings struct{ families *lru.Cache }

// family is what the first pod of a controller has.
type family struct {
	labels, annotations, nodeSelector map[string]string
	owners                            []metav1.OwnerReference
	resources                         []apiv1.ResourceRequirements
	tolerations                       []apiv1.Toleration
	affinity                          *apiv1.Affinity
	volumes                           []apiv1.Volume
}

func newSiblings() siblings { return siblings{lru.New(maxFamilies)} }

// share replaces what the pod has by what a sibling has, where both are equal.
func (s siblings) share(pod *apiv1.Pod) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return
	}
	own := familyOf(pod)
	known, ok := s.families.Get(controller.UID)
	if !ok {
		s.families.Add(controller.UID, own)
		return
	}
	first := known.(*family)
	pod.Labels, pod.Annotations = either(first.labels, own.labels), either(first.annotations, own.annotations)
	pod.OwnerReferences = either(first.owners, own.owners)
	pod.Spec.NodeSelector, pod.Spec.Affinity = either(first.nodeSelector, own.nodeSelector), either(first.affinity, own.affinity)
	pod.Spec.Tolerations, pod.Spec.Volumes = either(first.tolerations, own.tolerations), either(first.volumes, own.volumes)
	if len(first.resources) == len(own.resources) {
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Resources = either(first.resources[i], own.resources[i])
		}
	}
}

func familyOf(pod *apiv1.Pod) *family {
	f := &family{
		labels: pod.Labels, annotations: pod.Annotations, nodeSelector: pod.Spec.NodeSelector, owners: pod.OwnerReferences,
		tolerations: pod.Spec.Tolerations, affinity: pod.Spec.Affinity, volumes: pod.Spec.Volumes,
	}
	for _, container := range pod.Spec.Containers {
		f.resources = append(f.resources, container.Resources)
	}
	return f
}

// either is the first where both are equal, which spares the second, and the second where they differ.
func either[T any](first, own T) T {
	if reflect.DeepEqual(first, own) {
		return first
	}
	return own
}
