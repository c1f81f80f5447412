package pricing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestThePastOfASpotPriceIsThatOfTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(hour, minute int) time.Time { return time.Date(2025, 1, 1, hour, minute, 0, 0, time.UTC) }
		history := []alicloud.SpotPrice{quote("b", 1, 4, 9), quote("a", 1, 2, 9), quote("a", 3, 6, 9), quote("a", 5, 3, 9), quote("a", 5, 5, 9)}
		b := running(t, &market{spot: map[string][]alicloud.SpotPrice{v100: history}}, spotIn("a"), onDemandIn("a"))
		for when, want := range map[time.Time]float64{
			at(0, 0): 5, // the present price, as the history does not reach back
			at(1, 0): 2, at(2, 59): 2, at(3, 0): 6, at(4, 30): 6, at(5, 0): 5, at(9, 0): 5,
		} {
			price, known := b.PriceAt(spotIn("a"), when)
			assert.True(t, known)
			assert.Equal(t, want, price, when)
		}
		for _, test := range []struct {
			offering Offering
			from, to time.Time
			want     float64
		}{
			{spotIn("a"), at(1, 30), at(1, 45), 2 * .25},
			{spotIn("a"), at(2, 0), at(6, 0), 2 + 6*2 + 5},
			{spotIn("a"), at(6, 0), at(6, 0), 0},
			{onDemandIn("a"), at(2, 0), at(6, 0), 9 * 4},
		} {
			cost, known := b.MarketCost(test.offering, test.from, test.to)
			assert.True(t, known)
			assert.InDelta(t, test.want, cost, 1e-9, test)
		}
		_, known := b.MarketCost(Offering{InstanceType: a10, Zone: "a", Spot: true}, at(1, 0), at(2, 0))
		assert.False(t, known)
	})
}
