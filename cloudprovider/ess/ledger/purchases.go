package ledger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

// Purchases is where package buyer enters purchases and the cloud's answers. It is safe for concurrent use.
type Purchases struct{ state *state }

// Attempt is what has to be sent for a purchase.
type Attempt struct {
	Request alicloud.ScaleRequest
	// Launches are sent in place of Request, one after the other, if there are any.
	Launches []LaunchCall
	// Plan: ESS has to be asked for a plan first.
	Plan bool
}

// Line are the purchases of one pool that have to be sent, in order.
type Line struct {
	Purchases []*Purchase
	// InTurn: they are sent one at a time.
	InTurn bool
}

// Enter makes a purchase of delta instances, all or nothing if it is atomic. It counts from this call on. The error says why
// nothing can be bought.
func (s *Purchases) Enter(groupID string, delta int, atomic bool) (*Purchase, error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	group, known := s.state.facts.Groups[groupID]
	if !known {
		return nil, UnknownGroup(groupID)
	}
	return s.state.account(group.PoolID).enter(groupID, order{delta: delta, atomic: atomic})
}

// Due returns the purchases to send, by pool. Where an attempt got no answer, the purchase is sent again only if the pool's
// activities were read, and show nothing of it; or by RunInstances, which is carried out once under a ClientToken.
func (s *Purchases) Due(managed sets.Set[string], read func(poolID string) bool, now time.Time) map[string]Line {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	due := map[string]Line{}
	for poolID := range managed {
		a := s.state.account(poolID)
		line := Line{InTurn: a.inTurn()}
		for _, p := range a.waiting() {
			if now.Sub(p.requested) <= sendFor && (read(poolID) || !p.attempts.uncertain || p.launch != nil) {
				line.Purchases = append(line.Purchases, p)
			}
		}
		if len(line.Purchases) > 0 {
			due[poolID] = line
		}
	}
	return due
}

// Untried returns those of the purchases that were never tried to be sent. The others are left to Due, which goes by what became of that.
func (s *Purchases) Untried(purchases []*Purchase) []*Purchase {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return slices.DeleteFunc(purchases, func(p *Purchase) bool { return !p.attempts.last.IsZero() })
}

// Take returns what has to be sent for the purchase, and marks it as being sent. It is false where nothing is to be sent now.
// Whoever takes a purchase has to end that by PutBack, Accepted, Refused, Launched or PartlyLaunched, or by Planned if that returns false: until
// then it is not sent again. No snapshot shows whether it is being sent.
func (s *Purchases) Take(p *Purchase) (Attempt, bool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if !s.state.account(p.poolID).take(p) {
		return Attempt{}, false
	}
	return Attempt{Request: p.request, Plan: p.plan, Launches: p.launches()}, true
}

// PutBack enters that the purchase was not sent after all.
func (s *Purchases) PutBack(p *Purchase) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	p.settle()
}

// Planned enters the answer to a request for a plan. It returns the request that has to be sent now; false where none has.
func (s *Purchases) Planned(p *Purchase, plan alicloud.Plan, err error) (alicloud.ScaleRequest, bool) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	send := s.state.account(p.poolID).planned(p, plan, err)
	if !send || p.abandoned {
		p.settle()
		return p.request, false
	}
	return p.request, true
}

// DropParallel returns the request without the parameter ParallelTask, if the cloud refused it because of that; else false.
func (s *Purchases) DropParallel(p *Purchase, refusal error) (alicloud.ScaleRequest, bool) {
	if !alicloud.Refuses(refusal, "ParallelTask") {
		return alicloud.ScaleRequest{}, false
	}
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	dropped := s.state.account(p.poolID).dropParallel(p, refusal)
	return p.request, dropped
}

// Accepted enters that the cloud accepted the purchase.
func (s *Purchases) Accepted(p *Purchase, scaling alicloud.Scaling) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	p.sending = false
	s.state.account(p.poolID).accept(p, scaling)
}

// Refused enters that an attempt to send the purchase failed.
func (s *Purchases) Refused(p *Purchase, err error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	p.sending = false
	s.state.account(p.poolID).refuse(p, err)
	p.settle()
}

// Rejected returns whether the purchase is over without having been accepted.
func (s *Purchases) Rejected(p *Purchase) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return !p.queued() && p.accepted.IsZero()
}

// NothingUnderWay returns whether, as far as is known, no instance is being added to the pool or removed from it.
func (s *Purchases) NothingUnderWay(poolID string) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.account(poolID).nothingUnderWay()
}

// Cancel stops waiting for up to n instances of the node group, the latest purchase first.
func (s *Purchases) Cancel(groupID string, n int) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	if group, known := s.state.facts.Groups[groupID]; known {
		s.state.account(group.PoolID).cancel(groupID, n)
	}
}

// Acknowledge drops failed instances that core has deleted, by their placeholders.
func (s *Purchases) Acknowledge(placeholders sets.Set[string]) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	for id := range placeholders {
		token, _ := snapshot.PlaceholderToken(id)
		for _, a := range s.state.accounts {
			if p := a.book[token]; p != nil {
				p.acknowledge(placeholders)
			}
		}
	}
}
