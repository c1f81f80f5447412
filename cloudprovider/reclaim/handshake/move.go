package handshake

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/pace"
)

// lastDecision is how long before its deadline a move is decided upon at the latest: the pods of a job that is suspended may take so long to end.
const lastDecision = pace.SuspendWait + time.Minute

// Moves are the handshakes with jobs that move to spot instances. They are safe for concurrent use.
type Moves struct {
	config  Config
	table   *table
	losses  *losses
	systems *systems
}

// errUnprepared is why a job stays whose pods would only be evicted, which its system may count as a failure.
var errUnprepared = errors.New("its system neither suspends nor shrinks it")

// stays returns why a job that is to move stays where it is for now, empty if it may leave. Nobody takes its instance: it leaves only once
// its work is saved, and it has a place that is ready.
func (m *Moves) stays(l loss, s state) (reason string) {
	switch {
	case s.phase == Asking || s.phase == Warning:
		return "the job is being asked and read"
	case s.failed || s.outcome == checkpointMissed:
		return "its move has failed"
	case s.job != nil && (s.job.Suspended || s.job.Finished || s.job.Stopped || s.job.HeldAs() != ""):
		return ""
	case !s.acknowledged:
		return "the acknowledgement that a checkpoint is saved has not come"
	case !m.haveReadyPlaces(l):
		return "its place on a spot instance is not ready"
	case !m.config.Clock.Now().Before(l.leaving[0].notice.Deadline.Add(-lastDecision)):
		return "there is no time left for it to leave"
	}
	return ""
}

// haveReadyPlaces returns whether there are places on spot instances that are ready now. One that was there a moment ago does not count, since
// the job could stay where it is.
func (m *Moves) haveReadyPlaces(l loss) bool {
	for node := range l.nodes() {
		if !m.config.MovesReady(node) {
			return false
		}
	}
	return true
}

// asksAgain returns whether a job that may leave now has trained for so long since it acknowledged that it is to save its work once more.
func (m *Moves) asksAgain(s state) bool {
	return s.acknowledged && m.config.Clock.Since(s.acknowledgedAt) >= max(leastTraining, s.took())
}

// noteMissed tells once that a job that is to move has not acknowledged in time, so that it stays.
func (m *Moves) noteMissed(l loss, s state) {
	until := l.awaitsUntil(s)
	isDue := !until.IsZero() && !m.config.Clock.Now().Before(until)
	if l.move && !s.acknowledged && isDue && m.table.conclude(l.party, s, checkpointMissed) {
		m.config.Events.Eventf(l.object(s), events.ReasonUnsaved, "No acknowledgement that the work is saved (request %s) came in time; the job stays on demand", s.id)
	}
}

// fail has a job stay that could not be prepared for its move: to evict its pods all the same could make it fail.
func (m *Moves) fail(ctx context.Context, l loss, err error) preparation {
	if ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The job's system did not prepare for its move to spot instances; it stays on demand", "job", l.party)
		s, _ := m.table.get(l.party)
		m.config.Events.Eventf(l.object(s), events.ReasonUnprepared, "The job could not be prepared for its move to spot instances, and stays on demand: %v", err)
		m.systems.cancelShrink(ctx, l.party, l.leavingWorkers(), m.config.Clock.Now().Add(callTimeout))
	}
	return preparation{by: postponing, failed: true}
}

// HaveMissed returns whether a job on the Node has not acknowledged in time that its work is saved, or could not be prepared for its move.
func (m *Moves) HaveMissed(node string) bool {
	for _, pod := range cluster.Drainable(m.config.Cluster.PodsOn(node)) {
		s, open := m.table.get(m.config.Cluster.PartyOf(pod))
		if open && s.leaving.Has(pod.UID) && !s.phase.isDecided() && (s.failed || s.outcome == checkpointMissed) {
			return true
		}
	}
	return false
}

// AreLeaving returns whether it is settled that a job on the Node leaves, or none is left there, or false as long as that is not known.
func (m *Moves) AreLeaving(node string) (leaving, known bool) {
	for _, pod := range cluster.Drainable(m.config.Cluster.PodsOn(node)) {
		s, open := m.table.get(m.config.Cluster.PartyOf(pod))
		switch {
		case !open || s.phase == Deciding || !s.phase.isDecided() && s.job == nil:
			return false, false
		case !s.phase.isDecided() && !s.job.Suspended && !s.job.Stopped && s.job.HeldAs() == "":
			return false, true
		}
	}
	return true, true
}

// LoseOtherwise returns whether a job on the Node loses pods to a notice that is no move.
func (m *Moves) LoseOtherwise(node string) bool {
	for _, pod := range cluster.Drainable(m.config.Cluster.PodsOn(node)) {
		if l := m.losses.of(m.config.Cluster.PartyOf(pod).Job()); len(l.leaving) > 0 && !l.move {
			return true
		}
	}
	return false
}
