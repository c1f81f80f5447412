package pricing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAnHourOfUsefulWorkCostsWhatLossesAndRefusalsAddToThePrice(t *testing.T) {
	terms := Terms{Restart: 15 * time.Minute}
	hours := func(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }
	for name, c := range map[string]struct {
		price, onDemand float64
		reliability     Reliability
		terms           Terms
		want            float64
	}{
		"an instance that is not reclaimed costs its price":                                 {3, 10, Reliability{}, terms, 3},
		"a lost instance costs a restart, and its time":                                     {3, 10, Reliability{Life: hours(2.5)}, terms, (3*2.5 + 10*.25) / 2.25},
		"of two, the dearer one that lives longer is worth more than one that is lost soon": {3.3, 10, Reliability{Life: hours(25)}, terms, (3.3*25 + 10*.25) / 24.75},
		// Half of the purchases are refused, so each is preceded by one that was: two minutes worth 10 an hour.
		"a refusal costs the time until it is known":             {3, 10, Reliability{Life: hours(2.25), Refusal: .5}, terms, (3*2.25 + 10*(.25+2./60)) / 2},
		"time may be worth more":                                 {3, 10, Reliability{Life: hours(2.25), Refusal: .5}, Terms{15 * time.Minute, 60}, (3*2.25 + 60*(.25+2./60)) / 2},
		"nobody begins for less than two restarts":               {3, 10, Reliability{Life: time.Minute}, terms, (3*.5 + 10*.25) / .25},
		"spot for nearly the price of on-demand is not worth it": {9, 10, Reliability{Life: hours(100000)}, terms, 10.01},
		"unless nobody knows what on-demand costs":               {9, 0, Reliability{Life: hours(2.25)}, terms, (9*2.25 + 9*.25) / 2},
	} {
		t.Run(name, func(t *testing.T) {
			assert.InDelta(t, c.want, UsefulCost(c.price, c.onDemand, c.reliability, c.terms), 1e-9)
		})
	}
}

// The example of docs/pricing.md.
func TestTheExampleOfTheDocs(t *testing.T) {
	terms := Terms{Restart: 10 * time.Minute}
	zone := func(life time.Duration, price float64) float64 {
		return UsefulCost(price, 17.973, Reliability{Life: life, Refusal: .05}, terms)
	}
	assert.InDelta(t, 6.55, zone(2*time.Hour, 4.494), .005)
	assert.InDelta(t, 4.65, zone(24*time.Hour, 4.494), .005)
	assert.InDelta(t, 6.55, zone(24*time.Hour, 6.38), .005)
}

func BenchmarkUsefulCostOfAThousandOfferings(b *testing.B) {
	for b.Loop() {
		for n := range 1000 {
			UsefulCost(3, 10, Reliability{Life: time.Duration(n+1) * time.Hour, Refusal: .1}, Terms{Restart: 10 * time.Minute})
		}
	}
}
