package processors

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// GPUOfferings knows the offerings whose nodes have GPUs.
type GPUOfferings interface {
	// BuysForCPUPods says whether nodes of the offering may be bought for pods that ask for no GPU: they have no GPU, or the
	// operator has allowed it.
	BuysForCPUPods(groupID string) bool
}

// GPUReserve leaves offerings with GPUs out of a scale-up none of whose pods asks for a GPU. Such pods still fill the room
// that GPU pods leave on nodes bought for those: core has placed them there before it scales up.
type GPUReserve struct {
	offerings GPUOfferings
	next      nodegroups.NodeGroupListProcessor
}

var _ nodegroups.NodeGroupListProcessor = (*GPUReserve)(nil)

// NewGPUReserve puts itself in front of another processor.
func NewGPUReserve(offerings GPUOfferings, next nodegroups.NodeGroupListProcessor) *GPUReserve {
	return &GPUReserve{offerings: offerings, next: next}
}

// Process hands on the groups that may be bought for the pods.
func (r *GPUReserve) Process(ctx *cacontext.AutoscalingContext, groups []cloudprovider.NodeGroup, nodeInfos map[string]*framework.NodeInfo,
	unschedulable []*apiv1.Pod) ([]cloudprovider.NodeGroup, map[string]*framework.NodeInfo, error) {
	if !slices.ContainsFunc(unschedulable, asksForGPU) {
		groups = slices.DeleteFunc(slices.Clone(groups), r.reserved)
	}
	return r.next.Process(ctx, groups, nodeInfos, unschedulable)
}

func (r *GPUReserve) reserved(group cloudprovider.NodeGroup) bool {
	return !r.offerings.BuysForCPUPods(group.Id())
}

// reservedReason is told of an offering in the Event NotTriggerScaleUp of a pod, behind the number of such offerings.
var reservedReason = orchestrator.NewSkippedReasons(
	"bought only for pods that ask for a GPU (their pools have no tag " + api.TagBuyForCPUPods + "=true)")

// explain adds to the status of a scale-up for CPU pods the offerings that were left out, so that the pods are told why.
func (r *GPUReserve) explain(attempt *status.ScaleUpStatus, groups []cloudprovider.NodeGroup) {
	if len(attempt.PodsRemainUnschedulable) == 0 {
		return
	}
	why := map[string]status.Reasons{}
	considered := slices.Clone(attempt.ConsideredNodeGroups)
	for _, group := range groups {
		if r.reserved(group) {
			why[group.Id()] = reservedReason
			considered = append(considered, group)
		}
	}
	attempt.ConsideredNodeGroups = considered
	for i := range attempt.PodsRemainUnschedulable {
		left := &attempt.PodsRemainUnschedulable[i]
		left.SkippedNodeGroups = joinReasons(left.SkippedNodeGroups, why)
	}
}

// CleanUp is called when the autoscaler ends.
func (r *GPUReserve) CleanUp() { r.next.CleanUp() }
