package scaleup

import (
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
)

// Obstacles has the Events of pending pods say why nothing can be bought of a node group. Core knows only that the group has its
// maximum size, which is also what the provider says of one whose price is above its cap.
type Obstacles struct{ next status.ScaleUpStatusProcessor }

var _ status.ScaleUpStatusProcessor = (*Obstacles)(nil)

// NewObstacles returns a processor that calls next.
func NewObstacles(next status.ScaleUpStatusProcessor) *Obstacles { return &Obstacles{next: next} }

// obstructed is a node group that can say why no more instances can be bought, empty if some can.
type obstructed interface{ Obstacle() string }

// Process passes on the status with the obstacles in place of core's reason. Many pods share one map of reasons.
func (o *Obstacles) Process(ctx *cacontext.AutoscalingContext, result *status.ScaleUpStatus) {
	obstacles := map[string]status.Reasons{}
	for _, group := range result.ConsideredNodeGroups {
		if blocked, ok := group.(obstructed); ok {
			if why := blocked.Obstacle(); why != "" {
				obstacles[group.Id()] = orchestrator.NewSkippedReasons(why)
			}
		}
	}
	for _, info := range result.PodsRemainUnschedulable {
		for id, reason := range info.SkippedNodeGroups {
			if obstacle := obstacles[id]; obstacle != nil && reason == status.Reasons(orchestrator.MaxLimitReachedReason) {
				info.SkippedNodeGroups[id] = obstacle
			}
		}
	}
	o.next.Process(ctx, result)
}

// CleanUp cleans up the next processor.
func (o *Obstacles) CleanUp() { o.next.CleanUp() }
