package scaling

import (
	"cmp"
	"slices"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// shelf holds the offers of one strategy in order of preference.
type shelf struct {
	// rounds are tried one after the other; the second, where there is one, pays as it goes instead of spot.
	rounds  [][]ecs.Offer
	balance bool
	// zones counts instances by zone.
	zones map[string]int
	// first is the first reason why an offer failed: the one that is reported.
	first *protocol.Failure
}

// newShelf lists what the group may buy for the purchase.
func newShelf(g *Group, p Purchase, strategy string) *shelf {
	f := &shelf{balance: g.MultiAZPolicy == PolicyBalance, zones: map[string]int{}}
	for _, i := range g.Members.Items {
		f.zones[i.VSwitch.Zone]++
	}
	types, vswitches := g.InstanceTypes, g.VSwitches
	if len(p.Types) > 0 {
		types = p.Types
	}
	if len(p.VSwitches) > 0 {
		vswitches = p.VSwitches
	}
	if len(types) == 0 || g.ConfigID == "" {
		f.first = protocol.Fail(CodeNoConfig, "Engine group %q has no active scaling configuration.", g.ID)
		return f
	}
	f.rounds = append(f.rounds, offersFor(g, types, vswitches, strategy))
	if strategy != ecs.NoSpot && compensates(g) {
		f.rounds = append(f.rounds, offersFor(g, types, vswitches, ecs.NoSpot))
	}
	return f
}

// compensates says whether the group buys pay-as-you-go instances where no spot instance can be had.
func compensates(g *Group) bool {
	s := g.scaling
	return *g.CompensateWithOnDemand && (g.MultiAZPolicy == PolicyCost || !s.Cloud.Temper.PolicyDecides)
}

// offersFor lists the offers of one strategy, by the group's policy.
func offersFor(g *Group, types, vswitches []string, strategy string) []ecs.Offer {
	s := g.scaling
	var offers []ecs.Offer
	for _, v := range vswitches {
		for _, t := range types {
			offers = append(offers, s.Compute.Offer(t, v, strategy, g.SpotPriceLimits[t]))
		}
	}
	if g.MultiAZPolicy == PolicyCost {
		now := s.Cloud.Clock.Now()
		slices.SortStableFunc(offers, func(a, b ecs.Offer) int {
			return cmp.Compare(a.PricePerCPU(s.Compute.Market, now), b.PricePerCPU(s.Compute.Market, now))
		})
	}
	return offers
}

// pick takes the best offer that can be had, and returns why others could not, and why there is none.
func (f *shelf) pick(whyNot func(ecs.Offer) *protocol.Failure) (_ ecs.Offer, failed []*protocol.Failure, none *protocol.Failure) {
	for round := range f.rounds {
		if f.balance {
			f.spread(round)
		}
		for len(f.rounds[round]) > 0 {
			o := f.rounds[round][0]
			why := whyNot(o)
			if why == nil {
				f.zones[o.Zone]++
				return o, failed, nil
			}
			if f.first == nil {
				f.first = why
			}
			failed = append(failed, why)
			// What cannot be had now cannot be had for the rest of this purchase.
			f.rounds[round] = f.rounds[round][1:]
		}
	}
	if f.first == nil {
		f.first = protocol.Fail(ecs.CodeNotOnSale, "The scaling group has no vSwitch.")
	}
	return ecs.Offer{}, failed, f.first
}

// spread puts the zones with the fewest instances first.
func (f *shelf) spread(round int) {
	slices.SortStableFunc(f.rounds[round], func(a, b ecs.Offer) int {
		return cmp.Compare(f.zones[a.Zone], f.zones[b.Zone])
	})
}
