package handshake

import (
	"context"

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
)

// staysOnDemand returns why a job that is to move stays where it is for now, empty if it may leave. Nobody takes its instance: it leaves only once
// its work is saved, and it has a place that is ready.
func (c *Controller) staysOnDemand(l loss, s state) (reason string) {
	switch {
	case s.phase == Asking || s.phase == Warning:
		return "the job is being asked and read"
	case s.failed || s.outcome == checkpointMissed:
		return "its move has failed"
	case s.job != nil && (s.job.Suspended || s.job.Finished || s.job.Stopped):
		return ""
	case !s.acknowledged:
		return "the acknowledgement that a checkpoint is saved has not come"
	case !c.replacements.haveAll(l) || !c.replacements.areReady(l):
		return "its place on a spot instance is not ready"
	}
	return ""
}

// noteMissedMove tells once that a job that is to move has not acknowledged in time, so that it stays.
func (c *Controller) noteMissedMove(l loss, s state) {
	until := l.awaitsUntil(s)
	isDue := !until.IsZero() && !c.config.Clock.Now().Before(until)
	if l.move && !s.acknowledged && isDue && c.table.conclude(l.party, s, checkpointMissed) {
		c.config.Events.Eventf(l.object(s), events.ReasonUnsaved, "No acknowledgement that the work is saved (request %s) came in time; the job stays on demand", s.id)
	}
}

// failMove has a job stay that could not be prepared for its move: to evict its pods all the same could make it fail.
func (c *Controller) failMove(ctx context.Context, l loss, err error) preparation {
	if ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The job's system did not prepare for its move to spot instances; it stays on demand", "job", l.party)
		s, _ := c.table.get(l.party)
		c.config.Events.Eventf(l.object(s), events.ReasonUnprepared, "The job could not be prepared for its move to spot instances, and stays on demand: %v", err)
		c.systems.cancelShrink(ctx, l.party, l.leavingWorkers(), c.config.Clock.Now().Add(callTimeout))
	}
	return preparation{by: postponing, failed: true}
}

// Moves are the handshakes with jobs that move to spot instances. They are safe for concurrent use.
type Moves struct {
	cluster *cluster.Cluster
	table   *table
	losses  *losses
}

// HaveMissed returns whether a job on the Node has not acknowledged in time that its work is saved, or could not be prepared for its move.
func (m *Moves) HaveMissed(node string) bool {
	for _, pod := range cluster.Drainable(m.cluster.PodsOn(node)) {
		s, open := m.table.get(m.cluster.PartyOf(pod))
		if open && s.leaving.Has(pod.UID) && !s.phase.isDecided() && (s.failed || s.outcome == checkpointMissed) {
			return true
		}
	}
	return false
}

// LoseOtherwise returns whether a job on the Node loses pods to a notice that is no move.
func (m *Moves) LoseOtherwise(node string) bool {
	for _, pod := range cluster.Drainable(m.cluster.PodsOn(node)) {
		if l := m.losses.of(m.cluster.PartyOf(pod).Job()); len(l.leaving) > 0 && !l.move {
			return true
		}
	}
	return false
}
