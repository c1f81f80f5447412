package ess

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/pricing"
)

// agingPrices are fresh until the test makes them stale.
type agingPrices struct {
	fixedPrices
	stale bool
}

func (a *agingPrices) FreshPrice(offering pricing.Offering) (float64, bool) {
	if a.stale {
		return 0, false
	}
	return a.Price(offering)
}

func TestAStalePriceVouchesForNoCap(t *testing.T) {
	const v100InA = "asg-1/" + v100 + "/zone-a/spot"
	for name, test := range map[string]struct {
		tags map[string]string
		// room is how many may be bought while the price is stale. The price is within the cap.
		room map[string]int
		told bool
	}{
		"under a cap": {map[string]string{"price-cap": "4"}, map[string]int{a10InA: 0}, true},
		"under the cap of another type": {
			map[string]string{"price-cap/" + v100: "9"}, map[string]int{a10InA: 10, v100InA: 0}, true},
		"without a cap": {nil, map[string]int{a10InA: 10}, false},
		"under a cap of a pool that cannot be targeted": {
			map[string]string{"price-cap": "9", "targeting": "whole"}, map[string]int{"asg-1/any/any/spot": 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			group.VSwitchIDs = []string{"vsw-a"}
			for key, value := range test.tags {
				group.Tags["gpu-spot.autoscaling/"+key] = value
			}
			prices := &agingPrices{stale: true}
			f := newFixture(t, newFakeCloud(group), func(c *Config) {
				prices.fixedPrices = c.Prices.(fixedPrices)
				c.Prices = prices
			})
			f.refresh()
			for id, room := range test.room {
				assert.Equal(t, room, f.group(id).MaxSize(), id)
			}
			problems := f.events.With("SpotPoolProblem")
			if test.told && assert.Len(t, problems, 1) {
				assert.Contains(t, problems[0], "--price-max-age")
				assert.Equal(t, 1., metric(t, "gpu_spot_pool_problem", "asg-1", "stale_price"))
			} else {
				assert.Empty(t, problems)
			}

			prices.stale = false
			f.refresh()
			for id := range test.room {
				assert.Equal(t, 10, f.group(id).MaxSize(), id)
			}
			assert.Len(t, f.events.With("SpotPoolProblem"), len(problems), "it is said once")
		})
	}
}

func TestAStalePriceIsToldWithTheOfferingsThatItKeepsFromBeingBought(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/price-cap"] = "9"
	prices := &agingPrices{stale: true, fixedPrices: fixedPrices{
		{InstanceType: a10, Zone: "zone-a", Spot: true}: 3, {InstanceType: v100, Zone: "zone-b", Spot: true}: 5}}
	f := newFixture(t, newFakeCloud(group), func(c *Config) { c.Prices = prices })
	f.refresh()
	assert.Equal(t, []string{"SpotPoolProblem: Pool asg-1 (stale_price): nothing can be bought under its price cap: " +
		"the last prices of " + v100 + " in zone-b, " + a10 + " in zone-a are older than --price-max-age. See what DescribeSpotPriceHistory and DescribePrice answer, in the log."}, f.events.With("SpotPoolProblem"))
}

func TestPricesAreThoseWithoutAProtectedHourOnlyForTypesThatNoPoolBuysWithOne(t *testing.T) {
	buys := func(protected time.Duration, spot bool, types ...string) *pool.Pool {
		known := &pool.Pool{Spot: spot, SpotDuration: protected}
		for _, instanceType := range types {
			known.Offerings = append(known.Offerings, &pool.Offering{Offering: pricing.Offering{InstanceType: instanceType, Zone: "a", Spot: spot}})
		}
		return known
	}
	assert.Equal(t, sets.New("alone"), unprotected(map[string]*pool.Pool{
		"without":   buys(0, true, "alone", "both"),
		"with":      buys(time.Hour, true, "both", "protected"),
		"on-demand": buys(0, false, "on-demand"),
	}))
}
