package ess

import (
	"cmp"
	"slices"
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
}

func purchaseOf(count int) purchase { return purchase{count: count} }

// buy creates the instances of a scale-out, as many as can be had.
func (s *Scaling) buy(a *activity, now time.Time) {
	if a.status != activityInProgress || a.bought {
		return
	}
	a.bought = true
	p := a.purchase
	count := p.count
	if p.most != nil && *p.most < count {
		count = *p.most
		a.failure = protocol.Fail(cmp.Or(p.because, ecs.CodeNoStock), "Only %d of %d instances could be created.", count, p.count)
	}
	shelf := s.options(a.group, p)
	for len(a.created) < count {
		o, why := shelf.pick(s.compute, now)
		if why != nil {
			a.failure = why
			return
		}
		a.created = append(a.created, s.launch(a, o, now))
	}
}

// shelf holds the options of a purchase in order of preference.
type shelf struct {
	group *group
	// rounds are tried one after the other; the second, where there is one, pays as it goes instead of spot.
	rounds  [][]ecs.Offer
	balance bool
	// first is the first reason why an option failed: the one that is reported.
	first *protocol.Failure
}

// options lists what the group may buy for the purchase.
func (s *Scaling) options(g *group, p purchase) *shelf {
	f := &shelf{group: g, balance: g.MultiAZPolicy == policyBalance}
	types, vswitches := g.InstanceTypes, g.VSwitches
	if len(p.types) > 0 {
		types = p.types
	}
	if len(p.vswitches) > 0 {
		vswitches = p.vswitches
	}
	if len(types) == 0 || g.configID == "" {
		f.first = protocol.Fail(codeNoConfig, "Scaling group %q has no active scaling configuration.", g.ID)
		return f
	}
	strategy := cmp.Or(p.strategy, g.SpotStrategy)
	f.rounds = append(f.rounds, s.round(g, types, vswitches, strategy))
	if strategy != ecs.NoSpot && *g.CompensateWithOnDemand {
		f.rounds = append(f.rounds, s.round(g, types, vswitches, ecs.NoSpot))
	}
	return f
}

// round lists the options of one strategy, by the group's policy.
func (s *Scaling) round(g *group, types, vswitches []string, strategy string) []ecs.Offer {
	var options []ecs.Offer
	for _, v := range vswitches {
		for _, t := range types {
			options = append(options, s.compute.Offer(t, v, strategy, g.SpotPriceLimits[t]))
		}
	}
	if g.MultiAZPolicy == policyCost {
		now := s.cloud.Clock.Now()
		slices.SortStableFunc(options, func(a, b ecs.Offer) int {
			return cmp.Compare(s.compute.PricePerCPU(a, now), s.compute.PricePerCPU(b, now))
		})
	}
	return options
}

// pick returns the best option that can be had now, or why there is none.
func (f *shelf) pick(compute *ecs.Compute, now time.Time) (ecs.Offer, *protocol.Failure) {
	for round := range f.rounds {
		if f.balance {
			f.spread(round)
		}
		for len(f.rounds[round]) > 0 {
			o := f.rounds[round][0]
			why := compute.WhyNot(o, now)
			if why == nil {
				return o, nil
			}
			if f.first == nil {
				f.first = why
			}
			// What cannot be had now cannot be had for the rest of this purchase.
			f.rounds[round] = f.rounds[round][1:]
		}
	}
	if f.first == nil {
		f.first = protocol.Fail(ecs.CodeNotOnSale, "Scaling group %q has no vSwitch.", f.group.ID)
	}
	return ecs.Offer{}, f.first
}

// spread puts the zones with the fewest instances first.
func (f *shelf) spread(round int) {
	count := map[string]int{}
	for _, i := range f.group.members.Items {
		count[i.VSwitch.Zone]++
	}
	slices.SortStableFunc(f.rounds[round], func(a, b ecs.Offer) int {
		return cmp.Compare(count[a.Zone], count[b.Zone])
	})
}
