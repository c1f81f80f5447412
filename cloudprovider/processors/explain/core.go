package explain

import (
	"slices"
	"strings"

	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"

	"gpu-spot-autoscaler/cloudprovider/reasons"
)

func obstacleOf(group cloudprovider.NodeGroup) *reasons.Reason {
	if blocked, ok := group.(reasons.Obstructed); ok {
		return blocked.Obstacle()
	}
	return nil
}

// fromCore returns core's reason as one of ours. Core says of every group with a target at its maximum that the maximum is reached,
// which is also what the provider says of one whose price is above its cap; the group itself knows better.
func fromCore(group cloudprovider.NodeGroup, reason status.Reasons) *reasons.Reason {
	switch typed := reason.(type) {
	case *reasons.Reason:
		return typed
	case clustersnapshot.SchedulingError:
		return doesNotFit(typed)
	case *orchestrator.MaxResourceLimitReached:
		return reasons.New(reasons.ClusterLimit, "Raise the limit of Cluster Autoscaler (--cores-total, --memory-total or --gpu-total).", "%s", text(reason))
	}
	switch reason {
	case status.Reasons(orchestrator.MaxLimitReachedReason):
		if why := obstacleOf(group); why != nil {
			return why
		}
		return reasons.New(reasons.Other, "", "no room when the loop looked, but there is by now")
	case status.Reasons(orchestrator.BackoffReason):
		return reasons.New(reasons.Backoff, "Wait: it is tried again within minutes; the Events of the autoscaler's Deployment say why the purchase failed.", "%s", text(reason))
	case status.Reasons(orchestrator.AllOrNothingReason):
		return reasons.New(reasons.NotAtOnce, "Raise the maximum of the pool, or let the gang be smaller.", "no room for all pods of the gang at once")
	}
	return reasons.New(reasons.Other, "", "%s", text(reason))
}

func text(reason status.Reasons) string { return strings.Join(reason.Reasons(), ", ") }

func doesNotFit(err clustersnapshot.SchedulingError) *reasons.Reason {
	why := slices.Clone(err.Reasons())
	if len(why) == 0 {
		why = []string{err.Error()}
	}
	return reasons.New(reasons.DoesNotFit, "Change the requests, the node selector, the affinity or the tolerations of the pod, or add a pool whose nodes fit it.",
		"%s", strings.Join(why, ", "))
}
