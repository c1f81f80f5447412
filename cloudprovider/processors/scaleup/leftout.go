package scaleup

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// notNowReason is what the Event NotTriggerScaleUp of a pod says of offerings that are not to be bought for it yet, after their number.
var notNowReason = reasons.New(reasons.WaitsForSpot, "",
	"not bought for such pods now (%s of the pool or the pod, or the deadline, the capacity or the on-demand floor of the pod)", api.TagOnDemandAfter)

// leftOut returns why the group is left out of a scale-up for the pods: it is reserved for pods that request GPUs, or not to be bought
// for these now. It returns nil for the others.
func (s *Search) leftOut(group cloudprovider.NodeGroup, pods []*apiv1.Pod) status.Reasons {
	switch {
	case !s.config.Offerings.BuysForCPUPods(group.Id()) && !slices.ContainsFunc(pods, processors.RequestsGPU):
		return processors.GPUPodsOnly
	case s.only == "" && s.config.Allows != nil && !s.config.Allows(group.Id(), pods): // what makes a plan has asked for all of its pods
		return notNowReason
	}
	return nil
}

// explainLeftOut adds the offerings that were left out to the status of a scale-up, with the reasons.
func (s *Search) explainLeftOut(attempt *status.ScaleUpStatus, pods []*apiv1.Pod) {
	none := s.config.Allows == nil && slices.ContainsFunc(pods, processors.RequestsGPU)
	if none || len(attempt.PodsRemainUnschedulable) == 0 || slices.ContainsFunc(pods, processors.IsProvisioningRequest) {
		return
	}
	left := map[string]status.Reasons{}
	considered := slices.Clone(attempt.ConsideredNodeGroups)
	for _, group := range s.autoscaling.CloudProvider.NodeGroups() {
		if reason := s.leftOut(group, pods); reason != nil {
			left[group.Id()] = reason
			considered = append(considered, group)
		}
	}
	attempt.ConsideredNodeGroups = considered
	for i := range attempt.PodsRemainUnschedulable {
		pod := &attempt.PodsRemainUnschedulable[i]
		pod.SkippedNodeGroups = joinReasons(pod.SkippedNodeGroups, left)
	}
}
