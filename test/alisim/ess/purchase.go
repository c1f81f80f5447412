package ess

import (
	"cmp"
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// purchase is what a scale-out is to buy. Empty fields mean that the group's configuration and policy decide.
type purchase struct {
	count     int
	types     []string
	vswitches []string
	strategy  string
	// most bounds what comes, for a simulated partial fill; nil means no bound.
	most    *int
	because string
	// rollBack is the fault that releases some of what came; nil for none.
	rollBack *protocol.Fault
}

func purchaseOf(count int) purchase { return purchase{count: count} }

// buy creates the instances of a scale-out, as many as can be had.
func (a *activity) buy(now time.Time) {
	if a.status != activityInProgress || a.bought {
		return
	}
	a.bought = true
	p := a.purchase
	count := p.count
	if p.most != nil && *p.most < count {
		count = *p.most
		a.failure = protocol.Fail(cmp.Or(p.because, ecs.CodeNoStock), "Only %d of %d instances could be created.", count, p.count)
		a.attempts = append(a.attempts, a.failure)
	}
	store := newStore(a.group, p)
	for len(a.created) < count {
		o, why := store.next(now)
		if why != nil {
			a.failure, a.attempts = why, append(a.attempts, store.attempts...)
			return
		}
		a.created = append(a.created, a.launch(o, now))
	}
}

// store sells what a purchase wants, one instance after the other.
type store struct {
	compute *ecs.Compute
	group   *group
	// wanted and onDemand are the shelves: that of the strategy asked for, and that of pay-as-you-go instances which the
	// group's capacity options ask for besides.
	wanted, onDemand *shelf
	mix              mix
	// attempts are the reasons why offers failed.
	attempts []*protocol.Failure
	// planned counts, in a plan, what was taken of each offer; nil in a purchase.
	planned map[ecs.OfferKey]int
}

func newStore(g *group, p purchase) *store {
	s := g.scaling
	strategy := cmp.Or(p.strategy, g.SpotStrategy)
	f := &store{compute: s.compute, group: g, wanted: newShelf(g, p, strategy), mix: g.mix()}
	if strategy != ecs.NoSpot && f.mix.any() {
		f.onDemand = newShelf(g, p, ecs.NoSpot)
	}
	return f
}

// next returns the best offer that can be had now, or why there is none.
func (f *store) next(now time.Time) (ecs.Offer, *protocol.Failure) {
	from := f.wanted
	if f.onDemand != nil && f.mix.wantsOnDemand() {
		from = f.onDemand
	}
	o, failed, why := from.pick(func(o ecs.Offer) *protocol.Failure { return f.whyNot(o, now) })
	f.attempts = append(f.attempts, failed...)
	if why != nil {
		return o, why
	}
	f.mix.add(o.Strategy)
	if f.planned != nil {
		f.planned[o.Key()]++
	}
	return o, nil
}

// whyNot says why an offer cannot be had, of which a plan may have taken some already.
func (f *store) whyNot(o ecs.Offer, now time.Time) *protocol.Failure {
	if why := f.compute.WhyNot(o, now); why != nil {
		return why
	}
	if taken := f.planned[o.Key()]; taken > 0 && taken >= f.compute.Room(o, now) {
		return protocol.Fail(ecs.CodeNoStock, "%s is sold out in zone %s.", o.Type.ID, o.Zone)
	}
	return nil
}
