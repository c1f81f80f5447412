package finish

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// In all of these the job has much time.
func TestNobodyWaitsWhoseTimeIsWorthMoreThanIsSaved(t *testing.T) {
	inOutage, back := Situation{Gone: map[Place]bool{0: true}, Outage: 3 * tick}, Situation{Patient: true}
	tooLong := Situation{Gone: map[Place]bool{0: true}, Outage: 215 * tick}
	for name, tc := range map[string]struct {
		zone        zone
		now         Situation
		valueOfTime float64
		want        Place
	}{
		"a long outage, by time that is worth less": {zone{1, often(200, 400)}, inOutage, 1.9, Nothing},
		"a long outage": {zone{1, often(200, 400)}, inOutage, 2.1, OnDemand},
		"a long outage, for longer than spot is worth":      {zone{1, often(200, 400)}, tooLong, 1.9, OnDemand},
		"that outage, by time that is worth nothing":        {zone{1, often(200, 400)}, tooLong, 0, Nothing},
		"spot that is young, by time that is worth nothing": {zone{1, inBursts}, back, 0, Nothing},
		"spot that is young":                                {zone{1, inBursts}, back, 2.1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			terms := terms
			terms.Slack, terms.ValueOfTime = 600, tc.valueOfTime
			planner, now := plannerOf(terms, tc.zone)
			tc.now.Now = timeOf(now)
			assert.Equal(t, tc.want, planner.Choose(State{Work: terms.Work, Slack: 600, On: Nothing}, tc.now))
		})
	}
}

// The job has not much time, so the tables decide.
func TestTheTablesKnowTheValueOfTime(t *testing.T) {
	for value, want := range map[float64]Place{0: Nothing, 40: OnDemand} {
		terms := terms
		terms.ValueOfTime = value
		planner, now := plannerOf(terms, zone{1, often(9, 120)})
		got := planner.Choose(State{Work: 150, Slack: 35, On: Nothing}, Situation{Now: timeOf(now), Gone: map[Place]bool{0: true}, Outage: 3 * tick})
		assert.Equal(t, want, got, value)
	}
}

func TestWhoeverWaitsPaysForTheTime(t *testing.T) {
	terms := terms
	terms.ValueOfTime = .5
	t.Run("in a chain", func(t *testing.T) {
		// The outage is over in the next tick.
		c := chain{
			up: []bool{true, false}, price: []float64{1, 0}, loss: []float64{0, 0},
			next: [][]float64{{1, 0}, {1, 0}}, kept: [][]float64{{1, 0}, {1, 0}}, lost: [][]float64{{0, 1}, {0, 1}},
		}
		table := newChainTable(terms, c)
		assert.InDelta(t, .5+104, table.withNothing(1, 100, 60), .01)
		assert.InDelta(t, .5+104, table.wait(1, 100, 60), .01)
	})
	t.Run("in scenes", func(t *testing.T) {
		// One outage is over in time, and the other is not.
		cost := func(valueOfTime float64) float64 {
			terms.ValueOfTime = valueOfTime
			free := [][]float64{{0, 0}, {0, 0}}
			table := &sceneTable{terms: terms, lost: free, found: free, known: 2}
			return table.waitFor(10, []float64{4, 20}, 100, 50)
		}
		assert.InDelta(t, .5*(4+10)/2, cost(.5)-cost(0), 1e-9)
	})
	t.Run("until an offer has lasted", func(t *testing.T) {
		free := func(float64, float64) float64 { return 0 }
		young := []offer{{price: 1, lives: []float64{500, 500}, age: 20}} // a restart later it is too old
		terms.ValueOfTime = 0
		before := terms.mature(young, 24, 100, 60, free)
		terms.ValueOfTime = .5
		assert.InDelta(t, .5*float64(terms.Restart), terms.mature(young, 24, 100, 60, free)-before, 1e-9)
	})
}

func TestAnInstanceCostsItsPriceAndTheTime(t *testing.T) {
	terms := terms
	terms.ValueOfTime, terms.Protected = .5, 18
	planner, now := plannerOf(terms, zone{1, often(9, 30)})
	for _, m := range planner.models {
		assert.InDelta(t, 3.5, m.terms.OnDemand, 1e-9)
		assert.InDelta(t, 1.5, m.offerAt(0, 1, timeOf(now)).price, 1e-9)
	}
}
