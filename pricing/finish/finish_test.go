package finish

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/pricing/market"
)

const (
	tick = 200 * time.Second
	poll = 3
	days = 12
	// perDay is how many ticks a day has.
	perDay = int(24 * time.Hour / tick)
)

func timeOf(ticks int) time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(ticks) * tick) }

var terms = Terms{Work: 200, Slack: 60, Restart: 4, OnDemand: 3}

// zone is up in a tick or not, at a price.
type zone struct {
	price float64
	up    func(ticks int) bool
}

func always(int) bool { return true }

// often is up but for a while of so many ticks in each so many.
func often(down, in int) func(int) bool { return func(ticks int) bool { return ticks%in >= down } }

// historyOf looks at the zones until so many ticks.
func historyOf(zones []zone, ticks int) *market.History {
	h := market.NewHistory(make([]string, len(zones)))
	for at := 0; at < ticks; at += poll {
		for i, z := range zones {
			h.Observe(i, timeOf(at), z.up(at), z.price)
		}
	}
	return h
}

func plannerOf(terms Terms, zones ...zone) (*Planner, int) {
	now := days * perDay
	return NewPlanner(historyOf(zones, now+1), terms, tick, poll*tick, timeOf(0), timeOf(now)), now
}

// inBursts comes back six times for some ticks, and then lasts for long. It has just come back when a planner has seen twelve days of it.
func inBursts(ticks int) bool {
	ticks = (ticks + 9) % 360
	return ticks >= 180 || ticks%30 < 12
}

func TestWhatIsChosen(t *testing.T) {
	fresh := State{Work: 200, Slack: 60, On: Nothing}
	cheap := zone{1, always}
	for name, tc := range map[string]struct {
		zones []zone
		state State
		now   Situation
		want  Place
	}{
		"spot that is there":                                {[]zone{cheap}, fresh, Situation{}, 0},
		"the cheaper of two":                                {[]zone{{1.2, always}, cheap}, fresh, Situation{}, 1},
		"the one that lasts, of two at one price":           {[]zone{{1, often(9, 30)}, cheap}, fresh, Situation{}, 1},
		"the one that lasts, though it costs a little more": {[]zone{{1, often(9, 30)}, {1.1, always}}, fresh, Situation{}, 1},
		"on-demand, if spot is dearer":                      {[]zone{{3.2, always}}, fresh, Situation{}, OnDemand},
		"on-demand, if there is no time for a loss":         {[]zone{cheap}, State{Work: 200, Slack: 7, On: Nothing}, Situation{}, OnDemand},
		"on-demand to the end, without time to leave it":    {[]zone{cheap}, State{Work: 200, Slack: 2, On: OnDemand}, Situation{}, OnDemand},
		"another, if the best is gone":                      {[]zone{{1.5, always}, cheap}, State{Work: 150, Slack: 50, On: Nothing}, Situation{Gone: map[Place]bool{1: true}}, 0},
		"spot again, if there is time":                      {[]zone{cheap}, State{Work: 200, Slack: 40, On: OnDemand}, Situation{}, 0},
		"nothing, until a short outage is over": {
			[]zone{{1, often(9, 120)}}, State{Work: 150, Slack: 50, On: Nothing}, Situation{Gone: map[Place]bool{0: true}, Outage: 3 * tick}, Nothing,
		},
		"on-demand, in an outage that lasts longer than any before": {
			[]zone{{1, often(9, 120)}}, State{Work: 150, Slack: 20, On: Nothing}, Situation{Gone: map[Place]bool{0: true}, Outage: 200 * tick}, OnDemand,
		},
		"nothing in an outage that will last for too long, while there is time": {
			[]zone{{1, often(200, 400)}}, State{Work: 200, Slack: 40, On: Nothing}, Situation{Gone: map[Place]bool{0: true}, Outage: 3 * tick}, Nothing,
		},
		"on-demand in such an outage, if spot is dearer": {
			[]zone{{3.1, often(200, 400)}}, State{Work: 200, Slack: 60, On: Nothing}, Situation{Gone: map[Place]bool{0: true}, Outage: 3 * tick}, OnDemand,
		},
		"on-demand in such an outage, if the job has it": {
			[]zone{{1, often(200, 400)}}, State{Work: 200, Slack: 60, On: OnDemand}, Situation{Gone: map[Place]bool{0: true}, Outage: 3 * tick}, OnDemand,
		},
		"on-demand in such an outage, with less time": {
			[]zone{{1, often(200, 400)}}, State{Work: 200, Slack: 39, On: Nothing}, Situation{Gone: map[Place]bool{0: true}, Outage: 3 * tick}, OnDemand,
		},
	} {
		t.Run(name, func(t *testing.T) {
			planner, now := plannerOf(terms, tc.zones...)
			tc.now.Now = timeOf(now)
			assert.Equal(t, tc.want, planner.Choose(tc.state, tc.now))
		})
	}
}

func TestAJobWithTimeWaitsUntilAnOfferingThatHasJustComeBackHasLasted(t *testing.T) {
	terms := terms
	terms.Slack = 600
	planner, now := plannerOf(terms, zone{1, inBursts})
	choose := func(slack int, on Place) Place {
		return planner.Choose(State{Work: terms.Work, Slack: slack, On: on}, Situation{Now: timeOf(now), Patient: true})
	}
	assert.Equal(t, Nothing, choose(600, Nothing))
	assert.Equal(t, Place(0), choose(39, Nothing), "there is less time")
	assert.NotEqual(t, Nothing, choose(600, OnDemand), "it has an instance")
	state := State{Work: terms.Work, Slack: 600, On: Nothing}
	assert.Equal(t, Place(0), planner.Choose(state, Situation{Now: timeOf(now)}), "it is not to be left with nothing")
	seen := noisy(historyOf([]zone{{1, inBursts}}, now+1), now)
	planner.view.noise = seen.Noise(timeOf(now))
	assert.Equal(t, Place(0), choose(600, Nothing), "nobody knows when it has come back")
}

// noisy returns the history of the first offering with each seventh look wrong.
func noisy(h *market.History, until int) *market.History {
	random, seen := rand.New(rand.NewPCG(1, 2)), market.NewHistory([]string{""})
	for at := 0; at <= until; at += poll {
		up, price := h.At(0, timeOf(at))
		seen.Observe(0, timeOf(at), up != (random.Float64() < 1./7), price)
	}
	return seen
}

func TestAsMuchOfThePresentIsTakenToBeWrongAsOfThePast(t *testing.T) {
	now := days * perDay
	seen := noisy(historyOf([]zone{{1, often(90, 200)}}, now+1), now)
	planner := NewPlanner(seen, terms, tick, poll*tick, timeOf(0), timeOf(now))
	renewed := planner.Beside(seen)
	state, wrong := State{Work: terms.Work, Slack: terms.Slack, On: Nothing}, 0
	for at := now - perDay; at <= now; at += poll {
		want := planner.Choose(state, Situation{Now: timeOf(at)})
		assert.Equal(t, want, renewed.Choose(state, Situation{Now: timeOf(at)}), at)
		if up, _ := seen.At(0, timeOf(at)); up != (want == 0) {
			wrong++
		}
	}
	assert.Positive(t, wrong, "spot is not bought where it was seen wrong, or bought all the same")
}

func TestUsefulTimeCostsNoLessWhereInstancesAreLostSooner(t *testing.T) {
	m := &model{view: &view{terms: terms}}
	cost := math.Inf(1)
	for _, life := range []float64{shortestLife, 1, float64(terms.Restart), float64(terms.Restart) + 2, 30, 90} {
		next := m.usefulCost(offer{price: 1, lives: []float64{life}})
		assert.LessOrEqual(t, next, cost, life)
		cost = next
	}
}

func TestAnOutageInWhichNobodyLookedHasNoLength(t *testing.T) {
	h := market.NewHistory([]string{""})
	for _, seen := range []struct {
		from, until int
		up          bool
	}{{0, 30, true}, {30, 60, false}, {60, 90, true}, {90, 120, false}, {2000, 2100, true}} {
		for at := seen.from; at < seen.until; at += poll {
			h.Observe(0, timeOf(at), seen.up, 1)
		}
	}
	v := &view{history: h, terms: terms, tick: tick, poll: poll * tick}
	assert.Equal(t, []float64{30}, v.outagesIn(timeOf(0), timeOf(2100)))
}

func TestSlackIsMuchByTheWholeWork(t *testing.T) {
	state := State{Work: 10, Slack: 39, Whole: 200}
	assert.False(t, terms.isLoose(state), "a fifth of what is left is less")
	state.Slack++
	assert.True(t, terms.isLoose(state))
	state.Whole = 0
	assert.Equal(t, terms.isLoose(State{Slack: 40, Whole: terms.Work}), terms.isLoose(state), "that of the terms otherwise")
	state.Slack = fewRestarts*terms.Restart - 1
	assert.False(t, terms.isLoose(State{Slack: state.Slack, Whole: 10}), "restarts take it")
}

func TestTheOfferingsThatCostLessThanOnDemand(t *testing.T) {
	planner, now := plannerOf(terms, zone{1, always}, zone{3.2, always}, zone{2, always})
	better := func(state State, gone ...Place) []Place {
		situation := Situation{Now: timeOf(now), Gone: map[Place]bool{}}
		for _, place := range gone {
			situation.Gone[place] = true
		}
		return planner.Better(state, situation)
	}
	onDemand := State{Work: 100, Slack: 60, On: OnDemand}
	assert.Equal(t, []Place{0}, better(onDemand), "whoever stays for now moves to the best later")
	assert.Equal(t, []Place{2}, better(onDemand, 0))
	assert.Empty(t, better(State{Work: 100, Slack: 3, On: OnDemand}), "there is no time for it")
	assert.Empty(t, better(State{Work: 1, Slack: 60, On: OnDemand}), "it is almost over")
}

func TestNobodyWaitsForAnOfferingThatHasBeenUpForLong(t *testing.T) {
	free := func(float64, float64) float64 { return 0 }
	young := offer{price: 1, lives: []float64{2, 500}, age: 20}
	assert.Less(t, terms.mature([]offer{young}, 24, 100, 60, free), 100.)
	young.age++ // in a restart it will be older
	assert.True(t, math.IsInf(terms.mature([]offer{young}, 24, 100, 60, free), 1))
}

func TestOnDemandIsLeftForSpotThatIsWorseThanInTheMean(t *testing.T) {
	c := chain{
		up: []bool{true}, price: []float64{1}, loss: []float64{0},
		next: [][]float64{{1}}, kept: [][]float64{{1}}, lost: [][]float64{{1}},
	}
	table := newChainTable(terms, c)
	offers := []offer{{price: 1, lives: []float64{50, 100, 150}}}
	spot := terms.buy(offers[0], 200, 60, table.afterLoss(0))
	assert.Less(t, table.onDemandIn(0, 0, 200, 60), spot, "there, spot is never lost")
	assert.Greater(t, table.onDemandBeside(offers, 0, 0, 200, 60), spot)
	assert.Equal(t, table.onDemandIn(0, 0, 200, 60), table.onDemandBeside(nil, 0, 0, 200, 60))
}

func TestAnOfferingThatWasNeverSeenDownIsNotYoung(t *testing.T) {
	planner, now := plannerOf(terms, zone{1, always}, zone{1, inBursts})
	for _, m := range planner.models {
		assert.True(t, math.IsInf(m.offerAt(0, 1, timeOf(now)).age, 1))
		assert.Less(t, m.offerAt(1, 1, timeOf(now)).age, 20.)
	}
}

func TestThereIsNoPlannerOfTooShortAPast(t *testing.T) {
	h := market.NewHistory([]string{"a"})
	h.Observe(0, timeOf(0), true, 1)
	assert.Nil(t, NewPlanner(h, terms, tick, poll*tick, timeOf(0), timeOf(0).Add(leastPast-time.Second)))
	assert.Nil(t, NewPlanner(h, terms, time.Hour, time.Hour, timeOf(0), timeOf(0).Add(leastTicks*time.Hour-time.Second)))
}

// TestNoDeadlineIsMissed runs jobs in markets that get worse than they ever were, with every slack that is enough for on-demand. The
// market is seen every few ticks, and purchases are refused in between.
func TestNoDeadlineIsMissed(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, slack := range []int{5, 8, 9, 13, 20, 60} {
		terms := terms
		terms.Slack = slack
		zones := []zone{{1, often(9, 60)}, {1.1, often(12, 45)}}
		planner, now := plannerOf(terms, zones...)
		for n := range 30 {
			badness := random.Float64()
			t.Run(fmt.Sprintf("slack %d, market %d", slack, n), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(n), uint64(slack)))
				s := State{Work: terms.Work, Slack: slack, On: Nothing}
				on, age, gone, last := Nothing, 0, map[Place]bool{}, Nothing
				for elapsed := 0; s.Work > 0; elapsed++ {
					if elapsed%poll == 0 {
						gone = map[Place]bool{}
					}
					if on >= 0 && age > 0 && r.Float64() < badness {
						on = Nothing
					}
					if last >= 0 && on == Nothing {
						gone[last] = true
					}
					if last = on; on < 0 { // it stays on spot until that is lost
						s.On = on
						last = planner.Choose(s, Situation{Now: timeOf(now), Gone: gone})
					}
					if last != on {
						on, age, s.WarmUp = last, 0, terms.Restart
					}
					if on >= 0 && age == 0 && r.Float64() < badness {
						on = Nothing // refused
					}
					age++
					switch {
					case on == Nothing:
						s.Slack--
					case s.WarmUp > 0:
						s.WarmUp--
						s.Slack--
					default:
						s.Work--
					}
					if s.Slack < 0 {
						t.Fatal("it is late")
					}
				}
			})
		}
	}
}

func TestAChainWithoutLossesCostsItsPrice(t *testing.T) {
	c := chain{
		up: []bool{true}, price: []float64{1}, loss: []float64{0},
		next: [][]float64{{1}}, kept: [][]float64{{1}}, lost: [][]float64{{1}},
	}
	table := newChainTable(terms, c)
	assert.InDelta(t, 104, table.withNothing(0, 100, 60), .01, "the restart is paid for, too")
	assert.InDelta(t, 3*104, table.withNothing(0, 100, 7), .01, "there is no time for a loss")
	assert.Greater(t, table.withNothing(0, 100, 3), 3.*lateCost)
}

func TestAChainInAnOutageWaitsIfThatIsCheaper(t *testing.T) {
	// Half of the time, the outage is over in the next tick.
	c := chain{
		up: []bool{true, false}, price: []float64{1, 0}, loss: []float64{0, 0},
		next: [][]float64{{1, 0}, {.5, .5}}, kept: [][]float64{{1, 0}, {1, 0}}, lost: [][]float64{{0, 1}, {0, 1}},
	}
	table := newChainTable(terms, c)
	assert.InDelta(t, 104, table.withNothing(1, 100, 60), .1, "to wait costs nothing")
	assert.InDelta(t, 3*104, table.withNothing(1, 100, 5), 1)
}

func TestClasses(t *testing.T) {
	c := newClasses(2, []float64{1, 1, 1, 2, 2, 2})
	assert.Equal(t, 0, c.of(1, 0))
	assert.Equal(t, 1, c.of(3, 0))
	glimpses := []glimpse{}
	for range 10 {
		glimpses = append(glimpses, glimpse{best: 0, cost: 1, price: .9, kept: true}, glimpse{best: 0, cost: 3, price: 2, lost: true})
	}
	seen := c.chainOf(glimpses, 1)
	assert.Equal(t, []bool{true, true, false, false, false}, seen.up)
	assert.InDelta(t, .9, seen.price[0], 1e-9)
	assert.Greater(t, seen.next[0][1], .9, "the market always changes")
	assert.Greater(t, seen.loss[0], seen.loss[1], "losses are those of the class before")
	for _, rows := range [][][]float64{seen.next, seen.kept, seen.lost} {
		for _, row := range rows {
			sum := 0.
			for _, p := range row {
				sum += p
			}
			assert.InDelta(t, 1, sum, 1e-9)
		}
	}
}

func TestOffersThatLastedForAWhileLastFromThenOn(t *testing.T) {
	o := offer{price: 1, lives: []float64{2, 4, 10}}
	later, kept := o.after(4)
	assert.InDelta(t, 1./3, kept, 1e-9)
	assert.Equal(t, 6., later.life(0))
	assert.Equal(t, 18., later.withProtection(18).life(0))
	_, kept = o.after(20)
	assert.Zero(t, kept)
}

func BenchmarkChoose(b *testing.B) {
	var zones []zone
	for i := range 9 {
		zones = append(zones, zone{1 + .01*float64(i), often(9, 60+i)})
	}
	planner, now := plannerOf(terms, zones...)
	b.ResetTimer()
	for b.Loop() {
		planner.Choose(State{Work: 150, Slack: 50, On: Nothing}, Situation{Now: timeOf(now)})
	}
}

func TestALossInAChainCostsWhatIsBetweenTheValuesAroundIt(t *testing.T) {
	c := chain{
		up: []bool{true, false}, price: []float64{1, 0}, loss: []float64{.1, 0},
		next: [][]float64{{.5, .5}, {.5, .5}}, kept: [][]float64{{1, 0}, {1, 0}}, lost: [][]float64{{0, 1}, {0, 1}},
	}
	lost := newChainTable(terms, c).afterLoss(0)
	mean := (lost(100, 30) + lost(101, 30) + lost(100, 31) + lost(101, 31)) / 4
	assert.InDelta(t, mean, lost(100.5, 30.5), 1e-9)
	assert.Greater(t, lost(100, 30), lost(100, 31))
	assert.Equal(t, lost(1, 30), lost(.5, 30), "a job that is not over takes an instance")
	assert.Equal(t, lost(100, float64(terms.Slack)), lost(100, float64(terms.Slack)+50))
	assert.Zero(t, lost(0, 30))
}

func TestAnInstanceThatIsLostAtOnceTakesTime(t *testing.T) {
	down := func(ticks int) bool { return ticks%(2*poll) < poll } // lost by each second look
	planner, now := plannerOf(terms, zone{1, down})
	for _, m := range planner.models {
		o := m.offerAt(0, 1, timeOf(now).Add(poll*tick-time.Second))
		assert.Equal(t, shortestLife, o.lives[0])
	}
}
