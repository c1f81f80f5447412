package notice

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
)

// Verdict is what the cloud says about an instance on its way out that it does not list as recycling.
type Verdict string

const (
	// Pending: it still is on its way out.
	Pending Verdict = "pending"
	// Released: it no longer exists.
	Released Verdict = "released"
	// Withdrawn: it lives on, unlocked.
	Withdrawn Verdict = "withdrawn"
)

// agreeingPolls is how many polls in a row must agree before a Node is deleted or restored: two calls to the cloud may be
// answered by replicas that differ for a moment.
const agreeingPolls = 2

// streak is in how many polls in a row the verdict was the same.
type streak struct {
	verdict Verdict
	polls   int
}

func (s streak) agreed() Verdict {
	if s.polls < agreeingPolls {
		return Pending
	}
	return s.verdict
}

// Verdicts has the verdicts on all instances, and when ECS contradicted a notice. It is safe for concurrent use.
type Verdicts struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// streaks are by instance, of those on their way out that the cloud does not list as recycling.
	streaks map[string]streak
	// contradicted is when ECS last showed a reclaiming instance running and unlocked.
	contradicted map[string]time.Time
}

func newVerdicts(clk clock.PassiveClock) *Verdicts {
	return &Verdicts{clock: clk, streaks: map[string]streak{}, contradicted: map[string]time.Time{}}
}

// Judge enters the verdict of one poll, and returns the one that counts: Pending until enough polls agree.
func (s *Verdicts) Judge(instanceID string, v Verdict) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == Pending {
		delete(s.streaks, instanceID)
		return Pending
	}
	last := s.streaks[instanceID]
	if last.verdict != v {
		last = streak{verdict: v}
	}
	last.polls++
	s.streaks[instanceID] = last
	return last.agreed()
}

// On returns the verdict that counts for the instance.
func (s *Verdicts) On(instanceID string) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streaks[instanceID].agreed()
}

func (s *Verdicts) forget(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streaks, instanceID)
}

// Contradict notes that ECS shows the instance running and unlocked.
func (s *Verdicts) Contradict(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contradicted[instanceID] = s.clock.Now()
}

// contradictedAt returns when ECS last contradicted the notice for the instance, zero for never.
func (s *Verdicts) contradictedAt(instanceID string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contradicted[instanceID]
}

// ForgetOthers forgets contradictions about instances that are not reclaiming, and verdicts on instances that are not judged.
func (s *Verdicts) ForgetOthers(reclaiming, judged sets.Set[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.contradicted, func(id string, _ time.Time) bool { return !reclaiming.Has(id) })
	maps.DeleteFunc(s.streaks, func(id string, _ streak) bool { return !judged.Has(id) })
}
