package batchjob

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// IsTracked returns whether the Job controller counts the end of the pod, as the pod of a Job of Kubernetes, whatever system the Job
// belongs to. A pod that is evicted or deleted counts as failed, even if the Job is suspended, unless the controller itself ends
// it, or the Job's podFailurePolicy or podReplacementPolicy says otherwise.
// Source: isPodFailed and onlyReplaceFailedPods in pkg/controller/job of Kubernetes 1.36.
func IsTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// UntrackPatch returns the strategic merge patch after which the Job controller does not count the end of a pod. The controller
// makes the same patch before it deletes the pods of a suspended Job. Source: deleteJobPods and trackJobStatusAndRemoveFinalizers
// in pkg/controller/job of Kubernetes 1.36.
func UntrackPatch() map[string]any {
	return map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}}
}
