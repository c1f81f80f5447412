package ledger

import (
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/pricing"
)

// EnterBundled makes an atomic purchase of delta instances that is one of a bundle. It counts from this call on, and is sent after
// Commit. The error says why nothing can be bought.
func (s *Purchases) EnterBundled(groupID string, delta int, bundle string) (*Purchase, error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	group, known := s.state.facts.Groups[groupID]
	if !known {
		return nil, UnknownGroup(groupID)
	}
	return s.state.account(group.PoolID).enter(groupID, order{delta: delta, atomic: true, bundle: bundle})
}

// Commit lets the purchases of a bundle be sent.
func (s *Purchases) Commit(bundle []*Purchase) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for _, p := range bundle {
		p.uncommitted = false
		a := s.state.account(p.poolID)
		if known := a.pool(); known != nil {
			a.reportRequested(known, known.GroupID(p.offering), p.offering, p.request.Delta)
		}
	}
}

func (a *account) reportRequested(known *pool.Pool, groupID string, offering pricing.Offering, delta int) {
	price := "an unknown price"
	if perHour, ok := known.Price(offering, a.state.config.Prices, nil); ok {
		price = pricing.Amount(perHour, a.state.config.Prices.Currency()) + " an hour"
	}
	a.state.config.Events.Eventf(apiv1.EventTypeNormal, "SpotPurchaseRequested", "Buying %d instances of %s at %s each", delta, groupID, price)
}

// Drop cancels the purchases of a bundle of which none was sent.
func (s *Purchases) Drop(bundle []*Purchase) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	for _, p := range bundle {
		p.uncommitted = false
		p.abandon()
	}
}

// abandon gives up a purchase because its bundle cannot be had whole. Core sees no failure: the offering is not to blame. Of what may have
// been sent, the cloud's answer has to be known first. What was or will be delivered is given back.
func (p *Purchase) abandon() {
	p.abandoned = true
	if maySend := p.sending || p.accepted.IsZero() && p.attempts.uncertain; !maySend {
		p.cancelled = p.request.Delta
	}
}

// settle enters that no call for the purchase is under way any more. If its bundle broke during the call, the purchase is given up now.
func (p *Purchase) settle() {
	p.sending = false
	if p.abandoned {
		p.abandon()
	}
}

// isGivenUp returns whether the purchase is not sent again because its bundle broke, even if an attempt got no answer: the activities show
// what came of that. A purchase by RunInstances is sent again, since only another call with the same token returns what it created.
func (p *Purchase) isGivenUp() bool { return p.abandoned && p.launch == nil }

// abandonBundle gives up the others of the purchase's bundle if it came short itself.
func (s *state) abandonBundle(p *Purchase) {
	if !p.broken() {
		return
	}
	for _, other := range s.bundle(p) {
		other.abandon()
	}
}

// awaitsBundle returns whether another purchase of the bundle may still come short, so that this one has to be given back.
func (s *state) awaitsBundle(p *Purchase) bool {
	if p.bundle != "" && p.restored != nil && (!s.allHistoryRead() || s.config.Clock.Since(s.begun) < LaunchListLag) {
		return true // the others may not be restored yet
	}
	for _, other := range s.bundle(p) {
		if other.missing() > 0 || other.sending || s.mayComeShort(other) {
			return true
		}
	}
	return false
}

// mayComeShort returns whether the cloud may still take back instances that are listed already.
func (s *state) mayComeShort(p *Purchase) bool {
	return p.activityID != "" && (!p.delivery.ended() || p.delivery.mayRollBack(s.listed, s.config.Clock.Now()))
}

// allHistoryRead returns whether the purchases of former processes are known, of all pools.
func (s *state) allHistoryRead() bool {
	for _, a := range s.accounts {
		if !a.historyRead {
			return false
		}
	}
	return true
}

// bundle returns the other purchases that are made for the same gang.
func (s *state) bundle(p *Purchase) (others []*Purchase) {
	if p.bundle == "" {
		return nil
	}
	for _, a := range s.accounts {
		for _, other := range a.book {
			if other != p && other.bundle == p.bundle {
				others = append(others, other)
			}
		}
	}
	return others
}
