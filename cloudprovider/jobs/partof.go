package jobs

import (
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// PartOf says whether the pod is part of a job: of a known system, a batch Job among them, or one that its annotation names.
// The job is vital to, if it cannot go on without just this pod: it is what the workers meet at, or what launches them.
func (r *Registry) PartOf(pod *corev1.Pod) (job, vital bool) {
	member := r.Member(pod)
	job = member.System != SystemPod || pod.Annotations[api.AnnotationJob] != ""
	return job, job && member.Role != RoleWorker
}
