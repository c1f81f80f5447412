package scaleup

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
)

// Enforcer makes core scale up at once for every pod that it gets. Core itself waits until a pod is 2 s old, or 30 s if it
// requests a GPU, in case more are to come. The settle windows of package podlist decide that better. The enforcer for
// ProvisioningRequests, which this one replaces, is covered.
//
// An enforced scale-up also skips core's first check of --max-nodes-total. The estimator applies that limit again.
type Enforcer struct{}

var _ pods.ScaleUpEnforcer = Enforcer{}

// ShouldForceScaleUp returns whether there is any pod. Core skips its own check for an empty list too.
func (Enforcer) ShouldForceScaleUp(unschedulable []*apiv1.Pod) bool {
	return len(unschedulable) > 0
}
