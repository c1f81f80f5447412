package trim

import (
	"reflect"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// maxControllers is how many controllers are remembered: those whose pods were seen last.
const maxControllers = 10_000

// sharedParts lets the pods of one controller share in memory the large parts that are equal in them, above all their maps.
// It is safe for concurrent use.
type sharedParts struct{ byController *lru.Cache }

// parts are the parts of the first pod of a controller.
type parts struct {
	labels, annotations, nodeSelector map[string]string
	owners                            []metav1.OwnerReference
	resources                         []apiv1.ResourceRequirements
	tolerations                       []apiv1.Toleration
	affinity                          *apiv1.Affinity
	volumes                           []apiv1.Volume
}

func newSharedParts() sharedParts { return sharedParts{lru.New(maxControllers)} }

// share replaces parts of the pod by the equal parts of the first pod of its controller.
func (s sharedParts) share(pod *apiv1.Pod) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return
	}
	own := partsOf(pod)
	known, ok := s.byController.Get(controller.UID)
	if !ok {
		s.byController.Add(controller.UID, own)
		return
	}
	first := known.(*parts)
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

func partsOf(pod *apiv1.Pod) *parts {
	p := &parts{
		labels: pod.Labels, annotations: pod.Annotations, nodeSelector: pod.Spec.NodeSelector, owners: pod.OwnerReferences,
		tolerations: pod.Spec.Tolerations, affinity: pod.Spec.Affinity, volumes: pod.Spec.Volumes,
	}
	for _, container := range pod.Spec.Containers {
		p.resources = append(p.resources, container.Resources)
	}
	return p
}

// either returns the first if both are equal, so that the second is freed, and the second if they differ.
func either[T any](first, own T) T {
	if reflect.DeepEqual(first, own) {
		return first
	}
	return own
}
