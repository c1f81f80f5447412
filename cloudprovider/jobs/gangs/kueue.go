package gangs

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// Names of Kueue's plain pod groups. Source: pkg/controller/jobs/pod/constants/constants.go of Kueue 0.12.3.
const (
	labelKueueGroup              = "kueue.x-k8s.io/pod-group-name"
	annotationKueueTotal         = "kueue.x-k8s.io/pod-group-total-count"
	annotationKueueFastAdmission = "kueue.x-k8s.io/pod-group-fast-admission"
	annotationKueueServing       = "kueue.x-k8s.io/pod-group-serving"
	annotationKueueIsServing     = "true"
)

// ofKueue returns the gang of a pod of a pod group of Kueue, which admits a group once all of its pods exist. One with fast admission,
// whatever the value of that annotation, it admits before, and one that serves never ends and may have fewer pods: neither is a gang.
// Source: validatePodGroupMetadata and isServing in pkg/controller/jobs/pod/pod_controller.go of Kueue 0.12.3.
func ofKueue(pod *corev1.Pod) (gang podlist.NativeGang, ok bool) {
	name := pod.Labels[labelKueueGroup]
	if name == "" {
		return podlist.NativeGang{}, false
	}
	_, isFast := pod.Annotations[annotationKueueFastAdmission]
	size, err := strconv.ParseInt(pod.Annotations[annotationKueueTotal], 10, 32)
	if err != nil || size < 2 || isFast || pod.Annotations[annotationKueueServing] == annotationKueueIsServing {
		return podlist.NativeGang{}, false
	}
	return podlist.NativeGang{Name: pod.Namespace + "/" + labelKueueGroup + "/" + name, Size: int(size)}, true
}
