package processors

import (
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	provreqpods "k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/pods"
)

// IsProvisioningRequest returns whether the pod stands for a ProvisioningRequest or consumes one. Such pods have an
// all-or-nothing scale-up of their own in core.
func IsProvisioningRequest(pod *apiv1.Pod) bool {
	_, consumes := pod.Annotations[provreqv1.ProvisioningRequestPodAnnotationKey]
	_, deprecated := pod.Annotations[provreqpods.DeprecatedProvisioningRequestPodAnnotationKey]
	return consumes || deprecated
}
