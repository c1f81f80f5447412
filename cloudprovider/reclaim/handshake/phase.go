package handshake

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// Phase is how far a handshake has got.
type Phase string

const (
	// Asking: its pods are being asked for a checkpoint.
	Asking Phase = "Asking"
	// Warning: its object is being read, and an Event tells its owner.
	Warning Phase = "Warning"
	// Waiting: for the acknowledgement, for a confirmation of the notice, or for a place elsewhere.
	Waiting Phase = "Waiting"
	// Deciding: the job's system is being asked to stop, shrink or suspend the job.
	Deciding Phase = "Deciding"
	// Shrinking: the job's system is taking the reclaiming workers out of the job.
	Shrinking Phase = "Shrinking"
	// Leaving: the pods may be evicted, from a time on.
	Leaving Phase = "Leaving"
)

// transitions are the phases that may follow each phase. A handshake ends in any phase once the job has nothing more to lose.
// Pods that come after the acknowledgement, or once the decision has begun, were not asked: with them it begins again with
// another request, in Asking. So it does, from Waiting, when the last checkpoint is asked for, and in any phase when a drill
// becomes a notice or the reverse.
var transitions = map[Phase][]Phase{
	Asking:  {Warning},
	Warning: {Waiting, Deciding}, // Deciding when there is no more time to read the job
	Waiting: {Deciding},
	// Waiting when it turns out that nothing is lost for certain any more.
	Deciding:  {Waiting, Shrinking, Leaving},
	Shrinking: {Leaving},
	Leaving:   {},
}

// MayFollow returns whether a handshake may go from one phase to the other.
func (p Phase) MayFollow(from Phase) bool { return slices.Contains(transitions[from], p) }

// isDecided returns whether it is settled what becomes of the job.
func (p Phase) isDecided() bool { return p == Shrinking || p == Leaving }

// reported returns the phase as the status has it.
func (p Phase) reported() string {
	switch p {
	case Waiting:
		return status.JobPhaseWaiting
	case Deciding:
		return status.JobPhaseDeciding
	case Shrinking, Leaving:
		return status.JobPhaseLeaving
	}
	return status.JobPhaseWarning
}

// state is what this process knows of one handshake. Others than the table have copies.
type state struct {
	phase Phase
	// id is that of the request for a checkpoint.
	id        string
	requested time.Time
	// drill is true if all of it is a rehearsal.
	drill bool
	// move is true if the pods are to move to spot instances.
	move bool
	// outcome is how the request has ended, checkpointAcknowledged or checkpointMissed. It is empty until that was told.
	outcome string
	// begun is when this process began with it.
	begun time.Time
	// deadline is the first of those of the job's Nodes.
	deadline time.Time
	// firstNode is the one of them whose name comes first.
	firstNode string
	// leaving are the pods that lose their Node. The set is never changed, but replaced.
	leaving sets.Set[types.UID]
	// spared are the pods that the decision left out, because the notice of their Node was not confirmed.
	spared sets.Set[types.UID]
	// job is nil until its object was read, and for jobs without one.
	job *jobs.Job
	// acknowledged is true once the job has said that its work is saved, and acknowledgedAt when that was seen. A leader that did not see
	// it takes the time of the request.
	acknowledged   bool
	acknowledgedAt time.Time
	// last is true if the request is the second one, for what was trained since the first was acknowledged, and saving how long
	// the checkpoint of the first took.
	last   bool
	saving time.Duration
	// failed is true once the job could not be prepared for a move, which ends then.
	failed bool
	// evictFrom is from when the pods may be evicted, once the phase is Leaving.
	evictFrom time.Time
	// suspended is true once the job makes no pods for those that leave.
	suspended bool
	// untrack is from when the pods are taken out of the account of the Job controller, zero for never.
	untrack time.Time
}

func newState(now time.Time, drill bool) state {
	return state{phase: Asking, id: newID(now, drill), drill: drill, requested: now.Truncate(time.Second), begun: now}
}

// left returns how long before the deadline it is now.
func (s *state) left(now time.Time) time.Duration { return s.deadline.Sub(now).Round(time.Second) }

// goesOn returns what becomes of a job that has not acknowledged in time.
func (s *state) goesOn() string {
	if s.last {
		return "going on with what was saved before"
	}
	return "going on without"
}

// isClosedToNewcomers returns whether pods that come now are too late for this request.
func (s *state) isClosedToNewcomers() bool {
	return s.acknowledged || s.phase == Deciding || s.phase.isDecided()
}

// hasAsked returns whether the pod was asked in this handshake. Once the decision has begun, a pod counts only if the decision
// has counted it: a pod whose Node got its notice again after that still has the request.
func (s *state) hasAsked(pod leavingPod) bool {
	switch {
	case s.spared.Has(pod.UID):
		return false
	case s.leaving.Has(pod.UID):
		return true
	}
	return s.phase != Deciding && !s.phase.isDecided() && requestOn(pod) == s.id
}

// take has the pods join. The deadline is that of the earliest of their Nodes; it is not put off because the pods of an earlier
// one are gone.
func (s *state) take(l loss) {
	leaving := uids(l.leaving)
	if s.leaving != nil && leaving.IsSuperset(s.leaving) {
		s.deadline = time.Time{}
	}
	s.firstNode = ""
	for _, pod := range l.leaving {
		s.limit(pod.notice.Deadline)
		if s.firstNode == "" || pod.Spec.NodeName < s.firstNode {
			s.firstNode = pod.Spec.NodeName
		}
	}
	s.leaving, s.move = leaving, l.move
}

func (s *state) limit(deadline time.Time) {
	if s.deadline.IsZero() || deadline.Before(s.deadline) {
		s.deadline = deadline
	}
}

// randomLength times five bits cannot be guessed by trying: the digest is on a Node, and everybody who may read Nodes can read it.
const randomLength = 20

// newID returns "<Unix seconds of the request>-<random>", with notice.DrillSuffix in a drill. A leader that finds it on a pod knows when it was made.
// The rest cannot be guessed, because a pod on its node's network is known by nothing else.
func newID(now time.Time, drill bool) string {
	id := fmt.Sprintf("%d-%s", now.Unix(), strings.ToLower(rand.Text()[:randomLength]))
	if drill {
		id += notice.DrillSuffix
	}
	return id
}

// requestedAt returns false for an id that newID did not make.
func requestedAt(id string) (time.Time, bool) {
	seconds, _, ok := strings.Cut(id, "-")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(unix, 0), ok && err == nil
}
