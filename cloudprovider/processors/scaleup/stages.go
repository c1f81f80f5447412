package scaleup

import (
	"maps"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
)

func remainingPods(attempt *status.ScaleUpStatus) []*apiv1.Pod {
	var pods []*apiv1.Pod
	for _, left := range attempt.PodsRemainUnschedulable {
		pods = append(pods, left.Pod)
	}
	return pods
}

// joinStages adds to the status of earlier stages the reasons why a further stage had no option.
func joinStages(before, stage *status.ScaleUpStatus) *status.ScaleUpStatus {
	if before == nil {
		return stage
	}
	reasons := make(map[types.UID]status.NoScaleUpInfo, len(stage.PodsRemainUnschedulable))
	for _, left := range stage.PodsRemainUnschedulable {
		reasons[left.Pod.UID] = left
	}
	joined := before.PodsRemainUnschedulable[:0]
	for _, left := range before.PodsRemainUnschedulable {
		more, remains := reasons[left.Pod.UID]
		if !remains {
			continue // an offering suits the pod, but none of it can be bought now
		}
		left.RejectedNodeGroups = joinReasons(left.RejectedNodeGroups, more.RejectedNodeGroups)
		left.SkippedNodeGroups = joinReasons(left.SkippedNodeGroups, more.SkippedNodeGroups)
		joined = append(joined, left)
	}
	before.PodsRemainUnschedulable = joined
	before.ConsideredNodeGroups = append(before.ConsideredNodeGroups, stage.ConsideredNodeGroups...)
	return before
}

// joinReasons adds reasons about further node groups. Pods of one equivalence group share both maps, so more may have been
// added already.
func joinReasons(reasons, more map[string]status.Reasons) map[string]status.Reasons {
	for id := range more {
		if _, done := reasons[id]; done {
			return reasons
		}
		break
	}
	if reasons == nil {
		return more
	}
	maps.Copy(reasons, more)
	return reasons
}
