package scaleup

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
)

// reservedReason is the reason that the Event NotTriggerScaleUp of a pod gives, after the number of such offerings.
var reservedReason = orchestrator.NewSkippedReasons(
	"bought only for pods that ask for a GPU (their pools have no tag " + api.TagBuyForCPUPods + "=true)")

// withoutReserved returns the groups without those that are reserved for GPU pods, unless one of the pods requests a GPU.
func (s *Search) withoutReserved(groups []cloudprovider.NodeGroup, pods []*apiv1.Pod) []cloudprovider.NodeGroup {
	if slices.ContainsFunc(pods, processors.RequestsGPU) {
		return groups
	}
	return slices.DeleteFunc(slices.Clone(groups), s.isReserved)
}

func (s *Search) isReserved(group cloudprovider.NodeGroup) bool {
	return !s.config.Offerings.BuysForCPUPods(group.Id())
}

// explainReserved adds the reserved offerings to the status of a scale-up for CPU pods, with the reason.
func (s *Search) explainReserved(attempt *status.ScaleUpStatus) {
	if len(attempt.PodsRemainUnschedulable) == 0 {
		return
	}
	reasons := map[string]status.Reasons{}
	considered := slices.Clone(attempt.ConsideredNodeGroups)
	for _, group := range s.autoscaling.CloudProvider.NodeGroups() {
		if s.isReserved(group) {
			reasons[group.Id()] = reservedReason
			considered = append(considered, group)
		}
	}
	attempt.ConsideredNodeGroups = considered
	for i := range attempt.PodsRemainUnschedulable {
		left := &attempt.PodsRemainUnschedulable[i]
		left.SkippedNodeGroups = joinReasons(left.SkippedNodeGroups, reasons)
	}
}

func requestsGPUOrProvisioning(pod *apiv1.Pod) bool {
	return processors.RequestsGPU(pod) || processors.IsProvisioningRequest(pod)
}
