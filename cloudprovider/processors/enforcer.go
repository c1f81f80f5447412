package processors

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
)

// ScaleUpEnforcer has core scale up for every pod that reaches it, at once. Core itself waits until a pod is 2 s old,
// 30 s if it asks for a GPU, in case more are to come; [Hold] knows better when they have all come. It implies what
// the enforcer for ProvisioningRequests demands.
//
// Forcing also passes core's first test of --max-nodes-total; the estimator applies that limit again.
type ScaleUpEnforcer struct{}

var _ pods.ScaleUpEnforcer = ScaleUpEnforcer{}

// ShouldForceScaleUp says whether there is any pod to scale up for: core skips its own test of an empty list too.
func (ScaleUpEnforcer) ShouldForceScaleUp(unschedulable []*apiv1.Pod) bool {
	return len(unschedulable) > 0
}
