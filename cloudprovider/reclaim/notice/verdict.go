package notice

import (
	"k8s.io/apimachinery/pkg/util/sets"
)

// Verdict is what the cloud says about a reclaiming instance that it no longer lists as recycling.
type Verdict string

const (
	// Pending: it still is on its way out.
	Pending Verdict = "pending"
	// Released: it no longer exists.
	Released Verdict = "released"
	// Withdrawn: it lives on, unlocked.
	Withdrawn Verdict = "withdrawn"
)

// agreeingPolls is how many polls in a row must agree before a Node is deleted or given back: two calls to the cloud may be
// answered by replicas that differ for a moment.
const agreeingPolls = 2

// streak is in how many polls in a row the verdict was the same.
type streak struct {
	verdict Verdict
	polls   int
}

// Judge enters the verdict of one poll, and returns the one that counts: Pending until enough polls agree.
func (s *Store) Judge(instanceID string, v Verdict) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == Pending {
		delete(s.verdicts, instanceID)
		return Pending
	}
	last := s.verdicts[instanceID]
	if last.verdict != v {
		last = streak{verdict: v}
	}
	last.polls++
	s.verdicts[instanceID] = last
	return last.agreed()
}

// VerdictOn returns the verdict that counts for the instance.
func (s *Store) VerdictOn(instanceID string) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdicts[instanceID].agreed()
}

func (s streak) agreed() Verdict {
	if s.polls < agreeingPolls {
		return Pending
	}
	return s.verdict
}

// ForgetOthers forgets contradictions about instances that are not reclaiming, and verdicts on instances that are not judged.
func (s *Store) ForgetOthers(reclaiming, judged sets.Set[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.contradicted {
		if !reclaiming.Has(id) {
			delete(s.contradicted, id)
		}
	}
	for id := range s.verdicts {
		if !judged.Has(id) {
			delete(s.verdicts, id)
		}
	}
}
