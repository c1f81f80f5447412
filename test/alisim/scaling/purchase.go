package scaling

import (
	"cmp"
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Purchase is what a scale-out is to buy. Empty fields mean that the group's configuration and policy decide.
type Purchase struct {
	Count     int
	Types     []string
	VSwitches []string
	Strategy  string
	// Most bounds what comes, for a simulated partial fill; nil means no bound.
	Most *int
	// Because is the code of a partial fill; default that of a stock that is sold out.
	Because string
	// RollBack is the fault that releases some of what came; nil for none.
	RollBack *protocol.Fault
}

func purchaseOf(count int) Purchase { return Purchase{Count: count} }

// buy creates the instances of a scale-out, as many as can be had.
func (a *Activity) buy(now time.Time) {
	if a.Status != ActivityInProgress || a.bought {
		return
	}
	a.bought = true
	p := a.Purchase
	count := p.Count
	if p.Most != nil && *p.Most < count {
		count = *p.Most
		a.Failure = protocol.Fail(cmp.Or(p.Because, ecs.CodeNoStock), "Only %d of %d instances could be created.", count, p.Count)
		a.attempts = append(a.attempts, a.Failure)
	}
	store := newStore(a.Group, p)
	for len(a.Created) < count {
		o, why := store.next(now)
		if why != nil {
			a.Failure, a.attempts = why, append(a.attempts, store.attempts...)
			return
		}
		a.Created = append(a.Created, a.launch(o, now))
	}
}

// Plan returns the offers that the purchase would take now, one for each instance, without buying anything.
func (g *Group) Plan(p Purchase, now time.Time) []ecs.Offer {
	store := newStore(g, p)
	store.planned = map[ecs.OfferKey]int{}
	var offers []ecs.Offer
	for range p.Count {
		o, why := store.next(now)
		if why != nil {
			break
		}
		offers = append(offers, o)
	}
	return offers
}

// store sells what a purchase wants, one instance after the other.
type store struct {
	compute *ecs.Compute
	group   *Group
	// wanted and onDemand are the shelves: that of the strategy asked for, and that of pay-as-you-go instances which the
	// group's capacity options ask for besides.
	wanted, onDemand *shelf
	mix              mix
	// attempts are the reasons why offers failed.
	attempts []*protocol.Failure
	// planned counts, in a plan, what was taken of each offer; nil in a purchase.
	planned map[ecs.OfferKey]int
}

func newStore(g *Group, p Purchase) *store {
	s := g.scaling
	strategy := cmp.Or(p.Strategy, g.SpotStrategy)
	f := &store{compute: s.Compute, group: g, wanted: newShelf(g, p, strategy), mix: newMix(g)}
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
