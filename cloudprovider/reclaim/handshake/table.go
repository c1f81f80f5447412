package handshake

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// table has the state of all handshakes. It is safe for concurrent use.
type table struct {
	mu     sync.Mutex
	states map[cluster.Party]state
	// deciding are the parties for which a decision is in progress, perhaps for an earlier request than that of the state.
	deciding sets.Set[cluster.Party]
	// concluded are the ids of the requests of which it was counted how they ended. Those of a party are kept until its handshake has ended, and
	// the decision about it.
	concluded map[cluster.Party]sets.Set[string]
}

func newTable() *table {
	return &table{states: map[cluster.Party]state{}, deciding: sets.New[cluster.Party](), concluded: map[cluster.Party]sets.Set[string]{}}
}

// get returns a copy of the state of the handshake with the party, if there is one.
func (t *table) get(party cluster.Party) (state, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.states[party]
	return s, ok
}

func (t *table) has(party cluster.Party) bool {
	_, ok := t.get(party)
	return ok
}

func (t *table) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.states) > 0
}

// open returns the handshake in which the job loses these pods: that of the table, or else the given one, or a new one if the pods
// cannot join it.
func (t *table) open(l loss, otherwise state, now time.Time) state {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.states[l.party]
	if !ok {
		s = otherwise
	}
	// What is saved for a drill is old when a notice comes in earnest, so the job is asked again.
	if s.drill != l.drill || s.isClosedToNewcomers() && l.hasNewcomers(s) {
		s = newState(now, l.drill)
	}
	s.take(l)
	t.states[l.party] = s
	return s
}

// recovered returns the handshake that an earlier leader began: the latest of which one of the pods has the request, for its
// present instance, with the acknowledgement if that has come. If there is none, it returns a new one.
func (f *losses) recovered(l loss, now time.Time) state {
	s := newState(now, l.drill)
	found := false
	for _, pod := range l.leaving {
		id := requestOn(pod)
		at, ok := requestedAt(id)
		if !ok || notice.IsOfDrill(id) != l.drill {
			continue
		}
		if !found || at.After(s.requested) || at.Equal(s.requested) && id > s.id {
			s.id, s.requested, s.last, found = id, at, isLastID(id), true
		}
		if deadline, err := time.Parse(time.RFC3339, pod.Annotations[api.AnnotationReclaimDeadline]); err == nil {
			s.limit(deadline)
		}
	}
	if f.isAcknowledged(l, s) {
		s.acknowledged, s.acknowledgedAt, s.outcome = true, s.requested, checkpointAcknowledged
	}
	return s
}

// requestOn returns the id of the request that the pod has for its present instance.
func requestOn(pod leavingPod) string {
	if pod.Annotations[api.AnnotationReclaimInstance] != pod.notice.InstanceID {
		return ""
	}
	return pod.Annotations[api.AnnotationCheckpointRequest]
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
	last := newState(now, s.drill)
	last.id += lastSuffix
	last.last, last.saving, last.leaving, last.deadline, last.firstNode = true, s.took(), s.leaving, s.deadline, s.firstNode
	t.states[party] = last
	return true
}

// update changes the state. It returns false, and changes nothing, if another request was made meanwhile.
func (t *table) update(party cluster.Party, id string, change func(*state)) (updated bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.states[party]
	if !ok || s.id != id {
		return false
	}
	change(&s)
	t.states[party] = s
	return true
}

// conclude notes and counts how the request has ended. It returns false, and does nothing, if that is known: an acknowledgement that comes
// after the decision went on without is not counted as another one. The request may be an earlier one than that of the state, or one of a
// handshake that has ended, as long as the decision about it is in progress.
func (t *table) conclude(party cluster.Party, request state, outcome string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, open := t.states[party]
	isCurrent := open && s.id == request.id
	if isCurrent && s.outcome != "" || t.concluded[party].Has(request.id) {
		return false
	}
	if t.concluded[party] == nil {
		t.concluded[party] = sets.New[string]()
	}
	t.concluded[party].Insert(request.id)
	if isCurrent {
		s.outcome = outcome
		t.states[party] = s
	}
	if !request.drill && !request.move { // nothing is lost in a drill, nor by a job that stays
		checkpoints.WithLabelValues(party.System, outcome).Inc()
	}
	return true
}

// enter takes the handshake to the phase, and makes the other change. It returns false, and changes nothing, if another request
// was made meanwhile or if the phase may not follow the present one.
func (t *table) enter(party cluster.Party, id string, phase Phase, change func(*state)) (entered bool) {
	t.update(party, id, func(s *state) {
		if entered = phase.MayFollow(s.phase); !entered {
			return
		}
		s.phase = phase
		if change != nil {
			change(s)
		}
	})
	return entered
}

// warned notes that the job has been read and its owner told, or that this failed. The job is nil if it could not be read. If
// there was no more time to wait for that, the decision is in progress or made, and the phase stays.
func (t *table) warned(party cluster.Party, id string, job *jobs.Job) {
	t.update(party, id, func(s *state) {
		s.job = job
		if s.phase == Warning {
			s.phase = Waiting
		}
	})
}

// beginDecision enters Deciding, and returns false also while the decision for an earlier request is in progress. If it returns
// true, the caller has to call endDecision.
func (t *table) beginDecision(party cluster.Party, id string, change func(*state)) (begun bool) {
	t.mu.Lock()
	if t.deciding.Has(party) {
		t.mu.Unlock()
		return false
	}
	t.deciding.Insert(party)
	t.mu.Unlock()
	if begun = t.enter(party, id, Deciding, change); !begun {
		t.endDecision(party)
	}
	return begun
}

func (t *table) endDecision(party cluster.Party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deciding.Delete(party)
	t.forgetConcluded(party)
}

func (t *table) forget(party cluster.Party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.states, party)
	t.forgetConcluded(party)
}

// forgetConcluded forgets what was counted of the party if nobody asks any more. The lock is held.
func (t *table) forgetConcluded(party cluster.Party) {
	if _, open := t.states[party]; !open && !t.deciding.Has(party) {
		delete(t.concluded, party)
	}
}

// Status returns the handshakes for the autoscaler's status, those of the earliest deadline first. The ids of their requests are
// left out: with one of them a job's work can be acknowledged, and only those who may read its pods and Events are to know it.
func (c *Controller) Status() []status.JobReclaim { return c.table.status() }

func (t *table) status() []status.JobReclaim {
	t.mu.Lock()
	defer t.mu.Unlock()
	reclaims := make([]status.JobReclaim, 0, len(t.states))
	for party, s := range t.states {
		reclaims = append(reclaims, status.JobReclaim{
			System: party.System, Namespace: party.Namespace, Name: party.Name, Phase: s.phase.reported(), Acknowledged: s.acknowledged,
			Requested: s.requested.UTC(), Deadline: s.deadline.UTC(), Pods: s.leaving.Len(),
		})
	}
	slices.SortFunc(reclaims, func(a, b status.JobReclaim) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.System, b.System))
	})
	return reclaims
}
