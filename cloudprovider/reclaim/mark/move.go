package mark

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/move"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// Moves are implemented by *move.Watcher.
type Moves interface {
	Over(node *corev1.Node, n notice.Notice) (move.Outcome, bool)
}

// stays are what the Event says about each outcome of a move after which the instance stays.
var stays = map[move.Outcome]string{
	move.Missed:      "a job has not acknowledged in time that its work is saved, or could not be prepared",
	move.Expired:     "its jobs have not left in time",
	move.Overtaken:   "its jobs are losing another node",
	move.Interrupted: "the leader ended before its jobs left",
	move.Refused:     "it cannot be given back",
}

// endMove restores a Node whose jobs have not moved. Its instance stays.
func (m *Marker) endMove(ctx context.Context, node *corev1.Node, n notice.Notice, outcome move.Outcome) error {
	if changed, err := m.restore(ctx, node, n); err != nil || !changed {
		return err
	}
	move.Count(outcome)
	klog.FromContext(ctx).Info("Took the marks of a move off", "node", klog.KObj(node), "instance", n.InstanceID, "outcome", outcome)
	m.config.Events.Eventf(node, events.ReasonMoveEnded, "%s: %s. The node is restored, and instance %s stays", outcome, stays[outcome], n.InstanceID)
	return nil
}
