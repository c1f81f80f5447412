package spotfirst

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// Moves says which pods on on-demand instances are to move to spot ones. It is safe for concurrent use.
type Moves struct {
	deadlines *Deadlines
	terms     pricing.Terms
	clock     clock.PassiveClock
}

// NewMoves returns Moves that know the market as the Deadlines do.
func NewMoves(deadlines *Deadlines, terms pricing.Terms, clock clock.PassiveClock) *Moves {
	return &Moves{deadlines: deadlines, terms: terms, clock: clock}
}

// Costs are what an hour of a pod costs: of useful work on spot, its losses included, and on demand.
type Costs struct{ Spot, OnDemand float64 }

// Wanted returns whether the owner of the pod, or else the setting of its pool, wants the pod to move to spot where that pays.
func (m *Moves) Wanted(pod *apiv1.Pod, byPool bool) bool {
	s, _ := settingsOf(pod)
	return ptr.Deref(s.move, byPool)
}

// Pays returns what the pods of a job cost, which have all run on demand since then, and whether it pays to move them to spot: for as long as the
// work of the job takes yet, or, if it does not say, as long as it has run. It does not if there would be no time for another reclaim before its
// deadline, or by what is known of the market it costs less to stay until then.
func (m *Moves) Pays(pods []*apiv1.Pod, since time.Time) (costs Costs, pays bool) {
	ran := m.clock.Since(since)
	for _, pod := range pods {
		spot, onDemand, known := m.deadlines.least(pod)
		if !known {
			return Costs{}, false
		}
		costs.Spot += spot
		costs.OnDemand += onDemand
	}
	perPod := max(1, float64(len(pods)))
	for _, pod := range pods {
		goesOn, mayLeave := m.goesOn(pod, ran)
		if !mayLeave || !pricing.MovePays(costs.OnDemand/perPod, costs.Spot/perPod, goesOn, m.terms) {
			return costs, false
		}
	}
	return costs, len(pods) > 0
}

// goesOn returns how long the pod is taken to go on, which has run for so long, and whether its deadline allows a move.
func (m *Moves) goesOn(pod *apiv1.Pod, ran time.Duration) (goesOn time.Duration, mayLeave bool) {
	s, _ := settingsOf(pod)
	goesOn = ran
	if s.work >= 0 {
		s.work = max(0, s.work-ran)
		goesOn = min(ran, s.work)
	}
	slack, hasDeadline := s.slack(m.clock.Now())
	if !hasDeadline {
		return goesOn, s.deadline.IsZero()
	}
	if slack -= m.terms.Restart; slack < restarts*m.terms.Restart {
		return goesOn, false
	}
	choice := m.deadlines.chooser.Choose(m.deadlines.offersOf(pod), s.work, slack)
	return goesOn, choice == deadline.Spot || choice == deadline.Undecided
}
