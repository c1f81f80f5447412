// Package attempts joins the statuses of scale-ups that are one scale-up for core.
package attempts

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
)

// results are the results of attempts. Of those of several attempts, the one that stands first here is the result of all.
var results = []status.ScaleUpResult{
	status.ScaleUpSuccessful, status.ScaleUpError, status.ScaleUpNoOptionsAvailable, status.ScaleUpNotNeeded,
	status.ScaleUpLimitedByMaxNodesTotal, status.ScaleUpInCooldown, status.ScaleUpNotTried,
}

// Join returns the status of an attempt and a further one, which is for other pods or for more nodes for the same. Either may be nil.
// It may change and return the former.
func Join(attempt, further *status.ScaleUpStatus) *status.ScaleUpStatus {
	if attempt == nil {
		return further
	}
	if further == nil {
		return attempt
	}
	if slices.Index(results, further.Result) < slices.Index(results, attempt.Result) {
		attempt.Result = further.Result
	}
	if attempt.ScaleUpError == nil {
		attempt.ScaleUpError = further.ScaleUpError
	}
	attempt.ScaleUpInfos = append(attempt.ScaleUpInfos, further.ScaleUpInfos...)
	attempt.PodsTriggeredScaleUp = append(attempt.PodsTriggeredScaleUp, further.PodsTriggeredScaleUp...)
	attempt.PodsRemainUnschedulable = append(attempt.PodsRemainUnschedulable, further.PodsRemainUnschedulable...)
	attempt.PodsAwaitEvaluation = append(attempt.PodsAwaitEvaluation, further.PodsAwaitEvaluation...)
	attempt.CreateNodeGroupResults = append(attempt.CreateNodeGroupResults, further.CreateNodeGroupResults...)
	attempt.ConsideredNodeGroups = union(attempt.ConsideredNodeGroups, further.ConsideredNodeGroups)
	attempt.FailedCreationNodeGroups = union(attempt.FailedCreationNodeGroups, further.FailedCreationNodeGroups)
	attempt.FailedResizeNodeGroups = union(attempt.FailedResizeNodeGroups, further.FailedResizeNodeGroups)
	return attempt
}

// union returns the groups and those of more that are not among them.
func union(groups, more []cloudprovider.NodeGroup) []cloudprovider.NodeGroup {
	if len(groups) == 0 || len(more) == 0 {
		return slices.Concat(groups, more)
	}
	known := sets.New[string]()
	for _, group := range groups {
		known.Insert(group.Id())
	}
	for _, group := range more {
		if !known.Has(group.Id()) {
			groups = append(groups, group)
		}
	}
	return groups
}
