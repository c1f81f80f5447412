package alisim

import (
	"cmp"
	"slices"
	"time"
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

// option is one way to get an instance.
type option struct {
	typ      Type
	vsw      *vswitch
	sold     *offering
	strategy string
}

// buy creates the instances of a scale-out, as many as can be had.
func (c *cloud) buy(a *activity, now time.Time) {
	if a.status != activityInProgress || a.bought {
		return
	}
	a.bought = true
	p := a.purchase
	count := p.count
	if p.most != nil && *p.most < count {
		count = *p.most
		a.failure = fail(orElse(p.because, codeNoStock), "Only %d of %d instances could be created.", count, p.count)
	}
	shelf := c.options(a.group, p)
	for len(a.created) < count {
		o, why := shelf.pick(c, now)
		if why != nil {
			a.failure = why
			return
		}
		a.created = append(a.created, c.launch(a, o, now))
	}
}

// shelf holds the options of a purchase in order of preference.
type shelf struct {
	group *group
	// rounds are tried one after the other; the second, where there is one, pays as it goes instead of spot.
	rounds  [][]option
	balance bool
	// first is the first reason why an option failed: the one that is reported.
	first *failure
}

// options lists what the group may buy for the purchase.
func (c *cloud) options(g *group, p purchase) *shelf {
	s := &shelf{group: g, balance: g.MultiAZPolicy == policyBalance}
	types, vswitches := g.InstanceTypes, g.VSwitches
	if len(p.types) > 0 {
		types = p.types
	}
	if len(p.vswitches) > 0 {
		vswitches = p.vswitches
	}
	if len(types) == 0 || g.configID == "" {
		s.first = fail(codeNoConfig, "Scaling group %q has no active scaling configuration.", g.ID)
		return s
	}
	strategy := orElse(p.strategy, g.SpotStrategy)
	s.rounds = append(s.rounds, c.round(g, types, vswitches, strategy))
	if strategy != NoSpot && *g.CompensateWithOnDemand {
		s.rounds = append(s.rounds, c.round(g, types, vswitches, NoSpot))
	}
	return s
}

// round lists the options of one strategy, by the group's policy.
func (c *cloud) round(g *group, types, vswitches []string, strategy string) []option {
	var options []option
	for _, v := range vswitches {
		for _, t := range types {
			vsw := c.vswitches[v]
			options = append(options, option{c.types[t], vsw, c.offeringOf(t, vsw.Zone), strategy})
		}
	}
	if g.MultiAZPolicy == policyCost {
		now := c.clock.Now()
		slices.SortStableFunc(options, func(a, b option) int {
			return cmp.Compare(c.pricePerCPU(a, now), c.pricePerCPU(b, now))
		})
	}
	return options
}

func (c *cloud) pricePerCPU(o option, now time.Time) float64 {
	q := c.market.Quote(o.typ.ID, o.vsw.Zone, now)
	if o.strategy == NoSpot {
		return q.OnDemand / float64(o.typ.VCPU)
	}
	return q.Spot / float64(o.typ.VCPU)
}

// pick returns the best option that can be had now, or why there is none.
func (s *shelf) pick(c *cloud, now time.Time) (option, *failure) {
	for round := range s.rounds {
		if s.balance {
			s.spread(round)
		}
		for len(s.rounds[round]) > 0 {
			o := s.rounds[round][0]
			why := c.available(o, s.group, now)
			if why == nil {
				return o, nil
			}
			if s.first == nil {
				s.first = why
			}
			// What cannot be had now cannot be had for the rest of this purchase.
			s.rounds[round] = s.rounds[round][1:]
		}
	}
	if s.first == nil {
		s.first = fail(codeNotOnSale, "Scaling group %q has no vSwitch.", s.group.ID)
	}
	return option{}, s.first
}

// spread puts the zones with the fewest instances first.
func (s *shelf) spread(round int) {
	count := map[string]int{}
	for _, i := range s.group.members.items {
		count[i.vsw.Zone]++
	}
	slices.SortStableFunc(s.rounds[round], func(a, b option) int {
		return cmp.Compare(count[a.vsw.Zone], count[b.vsw.Zone])
	})
}

// available says why an option cannot be had, nil if it can.
func (c *cloud) available(o option, g *group, now time.Time) *failure {
	q := c.market.Quote(o.typ.ID, o.vsw.Zone, now)
	switch {
	case c.world.Quota.Instances > 0 && c.machines.len() >= c.world.Quota.Instances:
		return fail(codeQuota, "The account's quota of %d instances is used up.", c.world.Quota.Instances)
	case o.vsw.used >= o.vsw.AvailableIPs:
		return fail(codeNoAddress, "vSwitch %s has no address left.", o.vsw.ID)
	case q.Spot == 0 && q.OnDemand == 0:
		return fail(codeNotOnSale, "%s is not on sale in zone %s.", o.typ.ID, o.vsw.Zone)
	case o.strategy == NoSpot:
		if q.OnDemand == 0 || !o.sold.hasOnDemand() {
			return fail(codeNoStock, "%s is sold out in zone %s.", o.typ.ID, o.vsw.Zone)
		}
	case !q.Available || !o.sold.hasSpot(q.Capacity):
		return fail(codeNoStock, "%s is sold out as spot in zone %s.", o.typ.ID, o.vsw.Zone)
	case o.strategy == SpotWithPriceLimit && g.SpotPriceLimits[o.typ.ID] < q.Spot:
		return fail(codePriceTooLow, "The price limit %g of %s is below the spot price %g in zone %s.",
			g.SpotPriceLimits[o.typ.ID], o.typ.ID, q.Spot, o.vsw.Zone)
	}
	return nil
}
