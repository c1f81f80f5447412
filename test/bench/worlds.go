package main

import (
	"fmt"
	"maps"
	"slices"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/temper"
	"gpu-spot-autoscaler/test/rig"
)

const (
	region = "ap-southeast-1"
	// addresses is how many instances fit into a vSwitch: none of the worlds is short of them.
	addresses = 1 << 20
	// zoneSurcharge sets the prices of each zone apart from those of the one before.
	zoneSurcharge = .03
)

// newWorld is one in which pools of the given numbers of types and zones offer GPU types of the catalogue as spot, each
// at its lowest published spot price, a little dearer from zone to zone, without bound. Pools go through the types in
// turn.
func newWorld(pools, typesPerPool, zoneCount, maxSize int) alisim.World {
	return newWorldOf(soldTypes(), pools, typesPerPool, zoneCount, maxSize)
}

// newWorldOf is newWorld with the given types for sale.
func newWorldOf(sold []market.Type, pools, typesPerPool, zoneCount, maxSize int) alisim.World {
	var zones []string
	for i := range zoneCount {
		zones = append(zones, fmt.Sprintf("%s%c", region, 'a'+i))
	}
	w := alisim.NewWorld(region, zones...)
	for i := range w.VSwitches {
		w.VSwitches[i].AvailableIPs = addresses
	}
	for i := range pools {
		var types []string
		for j := range typesPerPool {
			types = append(types, sold[(i*typesPerPool+j)%len(sold)].ID)
		}
		pool := rig.SpotPool(fmt.Sprintf("asg-bench-%03d", i), maxSize, types, w.VSwitchIDs())
		pool.MultiAZPolicy = "BALANCE"
		w.Pools = append(w.Pools, pool)
	}
	for _, t := range sold {
		for i, zone := range zones {
			w.Sell(t.ID, zone, t.SpotMin*(1+zoneSurcharge*float64(i)), max(t.OnDemand, t.SpotMax))
		}
	}
	return w
}

// tempered is the world in the temper that was asked for.
func (s *session) tempered(world alisim.World) alisim.World {
	if s.temper != "" {
		world.Temper, _ = temper.Of(s.temper) // checked when it was read
	}
	return world
}

// temperOf names the rules: their base, and whether any differs from it.
func temperOf(rules temper.Rules) string {
	if base, err := temper.Of(rules.Base); err != nil || base != rules {
		return rules.Base + " with exceptions"
	}
	return rules.Base
}

// soldTypes are the types that were sold as spot somewhere, by id.
func soldTypes() []market.Type {
	catalogue := market.Catalogue()
	var sold []market.Type
	for _, id := range slices.Sorted(maps.Keys(catalogue)) {
		if catalogue[id].SpotMin > 0 {
			sold = append(sold, catalogue[id])
		}
	}
	return sold
}
