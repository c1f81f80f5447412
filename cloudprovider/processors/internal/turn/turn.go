// Package turn is about whose turn it is in core's scale-up: that of ProvisioningRequests or that of other pods.
package turn

import cacontext "k8s.io/autoscaler/cluster-autoscaler/context"

// Remember returns a function that restores whose turn it is now. Core's orchestrator of ProvisioningRequests passes the turn on in each
// call, so that they alternate with other pods by the loop; who calls it several times in one loop calls restore in between.
// Source: ScaleUp in provisioningrequest/orchestrator/wrapper_orchestrator.go.
func Remember(autoscaling *cacontext.AutoscalingContext) (restore func()) {
	mode := autoscaling.ProvisioningRequestScaleUpMode
	return func() { autoscaling.ProvisioningRequestScaleUpMode = mode }
}
