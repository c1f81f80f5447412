package handshake

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// Where pods wait until their new nodes are ready, the job trains meanwhile, and is asked once more for a checkpoint before they leave.
// So it has saved its work early, in case that the instance goes early, and loses nothing if it does not.
const (
	// lastRequestMargin is how long before the deadline the last checkpoint is asked for at the latest, and lastRequestTenths the part of a
	// short notice.
	lastRequestMargin = 90 * time.Second
	lastRequestTenths = 3
	// lastRequestRoom is how long before the end of the budget that is at least, and lastRequestRoomFraction the part of a short notice.
	// Pods with a long grace period leave early.
	lastRequestRoom         = 10 * time.Second
	lastRequestRoomFraction = 30
	// savingFactor is how many times as long as it took the job to save its work before it is given the second time.
	savingFactor = 2
	// leastTraining is for how long a job must have trained since its acknowledgement to be asked again.
	leastTraining = 10 * time.Second
	// lastSuffix ends the id of a request for the last checkpoint, by which the next leader knows that there is no other.
	lastSuffix = "-last"
)

func isLastID(id string) bool { return strings.HasSuffix(id, lastSuffix) }

// waitsForPlace returns why the pods stay until there is a place for them, and when to look again. The reason is empty if they do not.
func (c *Controller) waitsForPlace(l loss, s state) (reason string, until time.Time) {
	now := c.Clock.Now()
	if !c.replacements.haveAll(l.instances()) {
		reason, until = "there is no place elsewhere yet", notice.Earlier(l.firstSeen().Add(c.ReplaceWait), l.budget())
	} else if !c.replacements.areReady(l.instances()) && !s.last {
		reason, until = "the nodes that it gets are not ready yet", l.lastRequestAt(s)
	}
	if !now.Before(until) {
		return "", time.Time{}
	}
	return reason, notice.Earlier(now.Add(replaceCheck), until)
}

// lastRequestAt returns until when new nodes may become ready. Then there is time left to save the work once more.
func (l *loss) lastRequestAt(s state) (at time.Time) {
	for _, pod := range l.leaving {
		length := pod.notice.Length()
		latest := notice.Earlier(pod.notice.Deadline.Add(-min(lastRequestMargin, length*lastRequestTenths/10)),
			l.budget().Add(-max(min(lastRequestRoom, length/lastRequestRoomFraction), savingFactor*s.took())))
		if at.IsZero() || latest.Before(at) {
			at = latest
		}
	}
	return at
}

// took returns how long the job took to save its work, zero if that is not known.
func (s *state) took() time.Duration {
	if s.last {
		return s.saving
	}
	if !s.acknowledged {
		return 0
	}
	return s.acknowledgedAt.Sub(s.requested)
}

// asksAgain returns whether the job is to be asked for its last checkpoint now that its pods are about to leave: if it has trained since it
// acknowledged the first, for longer than it takes to save the work, and there is time for that.
func (c *Controller) asksAgain(l loss, s state) bool {
	if c.ReplacementReady == nil || !s.acknowledged || s.last || l.awaitsUntil(s).IsZero() || c.isDoneTraining(l, s) ||
		s.job != nil && (s.job.Suspended || s.job.Finished) {
		return false
	}
	now := c.Clock.Now()
	return now.Sub(s.acknowledgedAt) >= max(leastTraining, s.took()) && now.Add(s.took()).Before(l.budget())
}

// isDoneTraining returns whether a job that has acknowledged has ended, and would begin again on a Node that is released. Where it is not
// asked again, all that restarts in place is taken to end.
func (c *Controller) isDoneTraining(l loss, s state) bool {
	if c.ReplacementReady == nil {
		return l.restartsInPlace()
	}
	for _, pod := range l.leaving {
		for _, container := range pod.Status.ContainerStatuses {
			if hasEndedSince(container.State, s.requested) || hasEndedSince(container.LastTerminationState, s.requested) {
				return true
			}
		}
	}
	return false
}

func hasEndedSince(state corev1.ContainerState, since time.Time) bool {
	return state.Terminated != nil && !state.Terminated.FinishedAt.Time.Before(since)
}

// askAgain begins the handshake again with the request for the last checkpoint. It returns false, and changes nothing, if the job is not
// waiting any more, or another request was made meanwhile.
func (t *table) askAgain(party cluster.Party, id string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.states[party]
	if !ok || s.id != id || s.phase != Waiting {
		return false
	}
	last := newState(now)
	last.id += lastSuffix
	last.last, last.saving, last.leaving, last.deadline = true, s.took(), s.leaving, s.deadline
	t.states[party] = last
	return true
}
