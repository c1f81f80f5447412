package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

// withMarket gives the provider a memory, and prices at which zone a is a little cheaper than zone b, and on-demand dear.
func withMarket(memory *market.Memory) func(*Config) {
	return func(c *Config) {
		c.Market, c.Terms = memory, pricing.Terms{Restart: 10 * time.Minute}
		c.Prices = fixedPrices{
			{InstanceType: a10, Zone: "zone-a", Spot: true}: 3, {InstanceType: a10, Zone: "zone-b", Spot: true}: 3.02,
			{InstanceType: a10, Zone: "zone-a"}: 10, {InstanceType: a10, Zone: "zone-b"}: 10,
		}
	}
}

func TestAnOfferingThatIsLostOftenLosesToOneThatCostsLittleMore(t *testing.T) {
	memory := market.NewMemory()
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), withMarket(memory))
	f.refresh()
	best, _ := f.choice(a10InA, a10InB)
	require.Equal(t, a10InA, best)

	offering := pricing.Offering{InstanceType: a10, Zone: "zone-a", Spot: true}
	for n, at := range []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour} {
		lost := market.Living{ID: string(rune('a' + n)), Offering: offering, Lost: true}
		memory.Observe([]market.Living{lost, {ID: "kept", Offering: offering}}, time.Unix(1_800_000_000, 0).Add(at))
	}
	best, told := f.choice(a10InA, a10InB)
	assert.Equal(t, a10InB, best)
	assert.Equal(t, 3.02, told, "what is told is the market's price")
	pools, _ := f.provider.Pools()
	for _, o := range pools[0].Offerings {
		switch o.ID {
		case a10InA:
			assert.Less(t, *o.LifeHours, 8.)
			assert.Greater(t, *o.UsefulCost, *o.Price)
		case a10InB:
			assert.Greater(t, *o.LifeHours, 10.)
		}
	}
}

func TestTimeIsWorthWhatThePodsSayOrElseThePoolOrElseTheFlag(t *testing.T) {
	memory := market.NewMemory()
	f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")), withMarket(memory), func(c *Config) { c.Terms.ValueOfTime = 5 })
	f.cloud.groups["asg-2"].Tags[api.TagValueOfTime] = "100"
	f.refresh()
	const ofTagged = "asg-2/" + a10 + "/zone-a/spot"
	offering := pricing.Offering{InstanceType: a10, Zone: "zone-a", Spot: true}
	cost := func(value float64) float64 {
		return pricing.UsefulCost(3, 10, memory.Of(offering), pricing.Terms{Restart: 10 * time.Minute, ValueOfTime: value})
	}
	for name, c := range map[string]struct {
		group string
		value *float64
		want  float64
	}{
		"the flag":                  {a10InA, nil, cost(5)},
		"the pool":                  {ofTagged, nil, cost(100)},
		"the pods in any pool":      {a10InA, ptr.To(20.), cost(20)},
		"the pods against the pool": {ofTagged, ptr.To(20.), cost(20)},
		"the on-demand price":       {ofTagged, ptr.To(0.), cost(10)},
	} {
		price, known := f.provider.NodePrice(c.group, c.value)
		require.True(t, known)
		assert.InDelta(t, c.want, price, 1e-9, name)
	}
	pools, _ := f.provider.Pools()
	for _, pool := range pools {
		for _, o := range pool.Offerings {
			if o.ID == ofTagged {
				assert.InDelta(t, cost(100), *o.UsefulCost, 1e-9, "and the status says so")
			}
		}
	}
	model, err := f.provider.Pricing()
	require.NoError(t, err)
	price, known := model.(*pricing.Model).GroupPrice(ofTagged, nil)
	require.True(t, known)
	assert.InDelta(t, cost(100), price, 1e-9, "and the expander chooses by it")
}

func TestWhatOnePoolIsRefusedAndWhatItGetsIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := market.NewMemory()
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")), withMarket(memory))
		f.refresh()
		offering := pricing.Offering{InstanceType: a10, Zone: "zone-a", Spot: true}
		unknown := memory.Of(offering).Refusal
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		accepted := memory.Of(offering).Refusal
		assert.Less(t, accepted, unknown)
		f.cloud.end("asa-0", "OperationDenied.NoStock", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
		f.cloud.endAs("asa-0", "Warning")
		f.refresh()
		assert.InDelta(t, (2+1)/(3+20.), memory.Of(offering).Refusal, .001, "two of three were refused, beside what is believed of any")
	})
}

func TestARefusalByRunInstancesIsRememberedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := market.NewMemory()
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud, withMarket(memory))
		cloud.launchErrs = []error{errNoStock}
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(8))
		f.refresh()
		assert.InDelta(t, (8+1)/(8+20.), memory.Of(pricing.Offering{InstanceType: a10, Zone: "zone-a", Spot: true}).Refusal, .001)
	})
}

func TestSpotForThePriceOfOnDemandIsNotWorthIt(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), withMarket(market.NewMemory()), func(c *Config) {
		c.Prices = fixedPrices{{InstanceType: a10, Zone: "zone-a", Spot: true}: 9.5, {InstanceType: a10, Zone: "zone-a"}: 10}
	})
	f.refresh()
	assert.Greater(t, f.price(a10InA), 10.)
}
