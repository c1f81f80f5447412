package deadline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

var (
	spot     = pricing.Offering{InstanceType: "a10", Zone: "a", Spot: true}
	onDemand = pricing.Offering{InstanceType: "a10", Zone: "a"}
	start    = time.Unix(1_800_000_000, 0)
)

// fixture is a desk that has seen a spot offering being up for some days.
type fixture struct {
	*Desk
	memory *market.Memory
	clock  *clocktesting.FakeClock
	prices map[pricing.Offering]float64
	offers *Offers
}

func newFixture(days int) *fixture {
	f := &fixture{
		memory: market.NewMemory(), clock: clocktesting.NewFakeClock(start), prices: map[pricing.Offering]float64{spot: 1, onDemand: 3},
		offers: NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: onDemand, Share: 1}}),
	}
	f.Desk = f.deskOf(f.memory)
	for look := range days * 24 * 6 {
		f.see(time.Duration(look-days*24*6)*10*time.Minute, true)
	}
	return f
}

func (f *fixture) deskOf(memory *market.Memory) *Desk {
	return NewDesk(Config{
		Memory: memory, Clock: f.clock, Terms: pricing.Terms{Restart: 10 * time.Minute},
		Price: func(o pricing.Offering) (float64, bool) { price, known := f.prices[o]; return price, known },
	})
}

// see has an instance of the offering be there, or be reclaimed.
func (f *fixture) see(after time.Duration, up bool) {
	f.memory.Observe([]market.Living{{ID: fmt.Sprint(after), Offering: spot, Lost: !up, Price: f.prices[spot]}}, start.Add(after))
}

// work does what Run would do.
func (d *Desk) work(b testing.TB) (plans int) {
	for {
		select {
		case p := <-d.due:
			d.renew(b.Context(), p)
			plans++
		default:
			return plans
		}
	}
}

func (f *fixture) ask() Choice {
	return f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour})
}

func TestTheTablesAreComputedBesideTheDecision(t *testing.T) {
	f := newFixture(5)
	assert.Equal(t, Any, f.ask())
	assert.Equal(t, Any, f.ask())
	assert.Equal(t, 1, f.work(t), "once for both")
	assert.Equal(t, Spot, f.ask())
	assert.Zero(t, f.work(t))
	assert.Equal(t, Any, f.Choose(f.offers, Job{Work: 100 * time.Hour, Slack: 6 * time.Hour}), "a job of another length has another table")
	assert.Equal(t, Spot, f.Choose(f.offers, Job{Work: 23 * time.Hour, Slack: 5*time.Hour + 50*time.Minute}), "one of about the same length has not")
}

func TestTheFirstJobOfItsKindWaitsForATableThatIsBeingComputed(t *testing.T) {
	f := newFixture(5)
	f.isRunning.Store(true) // but it is slow
	assert.Equal(t, Learning, f.ask())
	f.clock.Step(learningTime)
	assert.Equal(t, Any, f.ask(), "too slow")
	f.work(t)
	assert.Equal(t, Spot, f.ask())
	short := newFixture(1)
	short.isRunning.Store(true)
	assert.Equal(t, Learning, short.ask())
	short.work(t)
	assert.Equal(t, Any, short.ask(), "too little is known")
	for n := range mostPlans {
		f.Choose(f.offers, Job{Namespace: "other", Work: 24 * time.Hour, Slack: 6 * time.Hour, ValueOfTime: ptr.To(float64(n + 1))})
	}
	assert.Equal(t, Any, f.Choose(f.offers, Job{Namespace: "other", Work: 7 * time.Hour, Slack: 3 * time.Hour}), "it is not kept")
}

func TestAnOfferingThatIsSeenAgainIsNotTakenToBeGone(t *testing.T) {
	f := newFixture(5)
	f.ask()
	f.work(t)
	require.Equal(t, Spot, f.ask())
	f.clock.Step(2 * time.Minute)
	f.see(2*time.Minute, true)
	f.ask()
	assert.Equal(t, f.clock.Now(), f.planOf(24*time.Hour, 6*time.Hour).now.Load().looked)
}

func TestADecisionGoesByThePresent(t *testing.T) {
	f := newFixture(5)
	f.ask()
	f.work(t)
	require.Equal(t, Spot, f.ask())
	f.prices[spot] = 3.2
	assert.Equal(t, OnDemand, f.ask(), "by the price of now")
	f.prices[spot] = 1
	f.clock.Step(time.Minute)
	f.see(time.Minute, false)
	f.ask()
	assert.Zero(t, f.work(t), "what has changed is looked at, and nothing is learnt")
	learnt := f.planOf(24*time.Hour, 6*time.Hour).now.Load().learnt
	assert.Equal(t, start, learnt, "and not learnt from before its time")
	f.clock.Step(LearnEvery)
	f.see(LearnEvery+time.Minute, true)
	f.ask()
	f.work(t)
	learnt = f.planOf(24*time.Hour, 6*time.Hour).now.Load().learnt
	assert.Equal(t, f.clock.Now(), learnt)
	f.clock.Step(7 * time.Hour)
	f.ask()
	f.work(t)
	assert.Equal(t, Any, f.ask(), "nobody has looked for hours")
}

func TestWhatIsBackIsKnownToWhoeverAsksFirst(t *testing.T) {
	f := newFixture(5)
	ask := func() Choice { return f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 20 * time.Minute}) } // there is no time to wait
	ask()
	f.work(t)
	require.Equal(t, Spot, ask())
	f.clock.Step(time.Minute)
	f.see(time.Minute, false)
	require.Equal(t, Any, ask())
	f.clock.Step(30 * time.Minute)
	f.see(31*time.Minute, true)
	assert.Equal(t, Spot, ask())
	assert.Zero(t, f.work(t), "nothing is learnt for that")
}

// Most of the time that spot comes back it is lost within half an hour. It has just come back.
func TestAnIdleJobWithMuchTimeWaitsForSpotToLast(t *testing.T) {
	f := newFixture(0)
	f.prices[spot] = 2
	up := func(ago int) bool { return (ago+2)%6 < 3 || (ago+2)%144 >= 72 } // in looks
	const looks = 14 * 24 * 6
	for ago := looks; ago >= 1; ago-- {
		f.see(-time.Duration(ago)*10*time.Minute, up(ago-1))
	}
	ask := func(idle bool, slack time.Duration) Choice {
		job := Job{Work: 24 * time.Hour, Slack: slack, Idle: idle}
		f.Choose(f.offers, job)
		f.work(t)
		return f.Choose(f.offers, job)
	}
	assert.Equal(t, Wait, ask(true, 15*time.Hour))
	assert.Equal(t, Spot, ask(false, 15*time.Hour), "others of its pods run")
	assert.Equal(t, Spot, ask(true, 2*time.Hour), "there is less time")
	f.clock.Step(time.Minute)
	f.memory.Refused(spot, 1)
	assert.Equal(t, Spot, ask(true, 15*time.Hour), "there is none: it is waited for, and tried")
	other := pricing.Offering{InstanceType: "a10", Zone: "b", Spot: true}
	f.prices[other] = 2
	f.offers = NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: other, Share: 1}, {Offering: onDemand, Share: 1}})
	assert.Equal(t, Spot, ask(true, 15*time.Hour), "another may be better, of which nothing is known")
}

func TestAJobOnDemandIsToldOnWhichSpotItCostsLess(t *testing.T) {
	f := newFixture(5)
	job := Job{Work: 24 * time.Hour, Slack: 6 * time.Hour}
	_, decided := f.Better(f.offers, job)
	assert.False(t, decided, "the tables are not there yet")
	better := func(job Job) []pricing.Offering {
		f.Better(f.offers, job)
		f.work(t)
		offerings, decided := f.Better(f.offers, job)
		assert.True(t, decided)
		return offerings
	}
	assert.Equal(t, []pricing.Offering{spot}, better(job))
	assert.Empty(t, better(Job{Work: 24 * time.Hour, Slack: 10 * time.Minute}), "there is no time for another restart")
	f.prices[spot] = 2.5
	assert.Equal(t, []pricing.Offering{spot}, better(job))
	assert.Empty(t, better(Job{Work: 20 * time.Minute, Slack: 6 * time.Hour}), "a restart costs more than it saves until the job is over")
	f.prices[spot] = 3.2
	assert.Empty(t, better(job))
	f.prices[spot] = 1
	f.clock.Step(time.Minute)
	f.see(time.Minute, false)
	assert.Empty(t, better(job), "there is none")
	f.clock.Step(7 * time.Hour)
	_, decided = f.Better(f.offers, job)
	assert.False(t, decided, "nobody has looked for hours")
	delete(f.prices, spot)
	_, decided = f.Better(f.offers, job)
	assert.False(t, decided)
}

func TestAJobWhoseSlackGetsLessIsDecidedByTheTableThatItHad(t *testing.T) {
	f := newFixture(5)
	f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 12 * time.Hour})
	f.work(t)
	for _, slack := range []time.Duration{12 * time.Hour, 8 * time.Hour, 4 * time.Hour, time.Hour} {
		assert.Equal(t, Spot, f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: slack}), slack)
	}
	assert.Equal(t, 3, f.work(t), "and each has one of its own soon")
	assert.Equal(t, Any, f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 16 * time.Hour}), "one with less slack says nothing of more")
}

// There is no spot, and much time.
func TestWhoseTimeIsWorthMoreThanSpotSavesDoesNotWaitForIt(t *testing.T) {
	f := newFixture(5)
	f.clock.Step(time.Minute)
	f.see(time.Minute, false)
	ask := func(valueOfTime *float64) Choice {
		return f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 24 * time.Hour, ValueOfTime: valueOfTime})
	}
	for name, c := range map[string]struct {
		stated *float64
		want   Choice
	}{
		"nothing is stated": {nil, Spot}, "next to nothing": {ptr.To(1. / 16), Spot}, "half of what spot saves": {ptr.To(1.), Spot},
		"twice as much": {ptr.To(4.), Any}, "more than anything costs": {ptr.To(pricing.MaxValueOfTime), Any}, "the on-demand price": {ptr.To(0.), Any},
	} {
		ask(c.stated)
		f.work(t)
		assert.Equal(t, c.want, ask(c.stated), name)
	}
}

// The job takes half of an instance, and spot saves 4.5 per hour of that.
func TestTheValueOfTimeIsThatOfAWholeInstance(t *testing.T) {
	f := newFixture(5)
	f.clock.Step(time.Minute)
	f.see(time.Minute, false)
	f.prices[spot], f.prices[onDemand] = 3, 12
	offers := NewOffers([]Offer{{Offering: spot, Share: .5}, {Offering: onDemand, Share: .5}})
	ask := func(valueOfTime float64) Choice {
		return f.Choose(offers, Job{Work: 24 * time.Hour, Slack: 24 * time.Hour, ValueOfTime: &valueOfTime})
	}
	for value, want := range map[float64]Choice{8: Spot, 16: Any} {
		ask(value)
		f.work(t)
		assert.Equal(t, want, ask(value), value)
	}
}

func (f *fixture) planOf(work, slack time.Duration) *plan {
	g, _ := GridOf(Job{Work: work, Slack: slack}, f.config.Terms.Restart)
	return f.plans.all[key{g, f.offers.key}]
}

// Spot for a worker costs more than on-demand, if it takes a whole instance of either, and the launcher of the same job takes the eighth part of
// the spot instance.
func TestPodsThatTakeOtherPartsOfTheSameOfferingsHaveAPlanOfTheirOwn(t *testing.T) {
	f := newFixture(5)
	f.prices[spot] = 3.2
	worker := f.offers
	launcher := NewOffers([]Offer{{Offering: spot, Share: .125}, {Offering: onDemand, Share: 1}})
	twice := NewOffers([]Offer{{Offering: spot, Share: .5}, {Offering: onDemand, Share: .5}})
	ask := func(offers *Offers) Choice { return f.Choose(offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour}) }
	ask(launcher)
	f.work(t)
	assert.Equal(t, Spot, ask(launcher))
	assert.Equal(t, Any, ask(worker), "it is not planned for yet")
	f.work(t)
	assert.Equal(t, OnDemand, ask(worker))
	assert.Equal(t, OnDemand, ask(twice), "whose shares compare alike")
	assert.Equal(t, Spot, ask(launcher))
}

func TestWhatSpotCostsIsWithItsLosses(t *testing.T) {
	f := newFixture(5)
	priced := f.Spot(f.offers, nil)
	require.Len(t, priced, 1)
	assert.Equal(t, spot, priced[0].Offering)
	assert.Greater(t, priced[0].Cost, 1.)
	assert.Less(t, priced[0].Cost, 1.2)
	price, _ := f.Price(onDemand)
	assert.Equal(t, 3., price)
	delete(f.prices, onDemand)
	assert.Empty(t, f.Spot(f.offers, nil), "nobody knows what they save")
}

func TestWhatSpotCostsIsWithTheValueOfTimeOfAsMuchAsThePodTakes(t *testing.T) {
	f := newFixture(5)
	cost := func(share float64, valueOfTime *float64) float64 {
		offers := NewOffers([]Offer{{Offering: spot, Share: share}, {Offering: onDemand, Share: share}})
		return f.Spot(offers, valueOfTime)[0].Cost
	}
	assert.Greater(t, cost(1, ptr.To(64.)), cost(1, nil)+.05)
	assert.InDelta(t, cost(1, ptr.To(64.))/8, cost(.125, ptr.To(64.)), 1e-9)
}

func TestTheBestOfferingsAreThoseByTheValueOfTime(t *testing.T) {
	f := newFixture(0)
	dear := pricing.Offering{InstanceType: "a10", Zone: "b", Spot: true}
	f.prices[dear] = 1.5
	offers := NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: dear, Share: 1}, {Offering: onDemand, Share: 1}})
	for hour := range 48 {
		f.memory.Observe([]market.Living{
			{ID: fmt.Sprint("spot", hour/2), Offering: spot, Lost: hour%2 == 1, Price: 1}, {ID: "dear", Offering: dear, Price: 1.5},
		}, start.Add(time.Duration(hour-48)*time.Hour))
	}
	for value, want := range map[float64]pricing.Offering{1: spot, 64: dear, worthOnDemand: spot} {
		seen, _ := f.best(offers, 3, Grid{valueOfTime: value}.stated())
		require.Len(t, seen, 2)
		assert.Equal(t, want, seen[0].Offering, value)
	}
}

func TestADeskGoesOnAfterARestart(t *testing.T) {
	f := newFixture(5)
	saved, err := f.memory.Encode()
	require.NoError(t, err)
	memory := market.NewMemory()
	require.NoError(t, memory.Decode(saved))
	late := market.NewMemory()
	next := f.deskOf(late)
	next.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour})
	next.work(t)
	require.NoError(t, late.Decode(saved))
	next.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour})
	next.work(t)
	assert.Equal(t, Spot, next.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour}), "also if it was asked before it had read what was saved")
	next = f.deskOf(memory)
	next.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour})
	next.work(t)
	assert.Equal(t, Spot, next.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 6 * time.Hour}))
}

func TestNothingIsDecidedWhereThereIsNothingToChoose(t *testing.T) {
	f := newFixture(5)
	delete(f.prices, onDemand)
	f.ask()
	f.work(t)
	assert.Equal(t, Undecided, f.ask(), "no price on demand")
	assert.Equal(t, Undecided, f.Choose(NewOffers([]Offer{{Offering: spot, Share: 1}}), Job{Work: 24 * time.Hour, Slack: 6 * time.Hour}), "no on-demand")
	assert.Empty(t, f.due)
}

func TestGrid(t *testing.T) {
	for name, c := range map[string]struct {
		work, slack, restart time.Duration
		tick                 time.Duration
		left, spare, once    int
	}{
		"work is rounded up, slack down": {61 * time.Minute, 59 * time.Minute, 10 * time.Minute, shortTick, 7, 5, 1},
		"a restart takes whole ticks":    {time.Hour, time.Hour, 12 * time.Minute, 12 * time.Minute, 5, 5, 1},
		"of about ten minutes":           {time.Hour, time.Hour, 24 * time.Minute, 12 * time.Minute, 5, 5, 2},
		"it takes one at least":          {time.Hour, time.Hour, time.Second, shortTick, 6, 6, 1},
		"long jobs have long ticks":      {90 * time.Hour, 20 * time.Hour, 10 * time.Minute, 20 * time.Minute, 270, 60, 1},
		"of very long ones a part":       {288 * time.Hour, 48 * time.Hour, 10 * time.Minute, 3 * shortTick, 288, 48, 1},
		"and of restarts that do not":    {time.Hour, time.Hour, 65 * time.Minute, (65*time.Minute + 6) / 7, 7, 6, 7},
		"too much slack is cut":          {24 * time.Hour, 100 * time.Hour, 10 * time.Minute, shortTick, 144, mostSlack, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, state := GridOf(Job{Work: c.work, Whole: 2 * c.work, Slack: c.slack}, c.restart)
			if c.slack <= mostSlack*g.tick {
				assert.InDelta(t, 2*state.Work, state.Whole, 1)
			}
			assert.Equal(t, c.tick, g.tick)
			assert.Equal(t, []int{c.left, c.spare, c.once}, []int{state.Work, state.Slack, g.restart})
			assert.GreaterOrEqual(t, g.work, state.Work)
			assert.GreaterOrEqual(t, g.slack, state.Slack)
		})
	}
}

// A job of 100 hours has 40 left, and 60 more until its deadline.
func TestMuchSlackIsMuchThoughItIsCut(t *testing.T) {
	_, state := GridOf(Job{Work: 40 * time.Hour, Whole: 100 * time.Hour, Slack: 60 * time.Hour}, 10*time.Minute)
	assert.Equal(t, mostSlack, state.Slack)
	assert.InDelta(t, 100./60, float64(state.Whole)/float64(state.Slack), .01)
}

// largest returns a desk and offers at which everything was seen for a month.
func largest(b *testing.B) (*fixture, *Offers) {
	f := newFixture(0)
	var all []Offer
	for n := range 1000 {
		o := pricing.Offering{InstanceType: fmt.Sprint("type-", n/2%100), Zone: fmt.Sprint("zone-", n/200), Spot: n%2 == 0}
		f.prices[o] = 3
		if o.Spot {
			f.prices[o] = 1 + float64(n)/1000
		}
		all = append(all, Offer{Offering: o, Share: 1})
	}
	for look := range 30 * 24 {
		var living []market.Living
		for n, o := range all {
			if isUp := (look+n)%(20+n%17) > 0; o.Spot {
				living = append(living, market.Living{ID: fmt.Sprint(n, look), Offering: o.Offering, Lost: !isUp, Price: f.prices[o.Offering]})
			}
		}
		f.memory.Observe(living, start.Add(time.Duration(look-30*24)*time.Hour))
	}
	return f, NewOffers(all)
}

func BenchmarkChoiceAtAThousandOfferings(b *testing.B) {
	f, offers := largest(b)
	f.Choose(offers, Job{Work: 48 * time.Hour, Slack: 16 * time.Hour})
	f.work(b)
	for b.Loop() {
		if f.Choose(offers, Job{Work: 48 * time.Hour, Slack: 16 * time.Hour}) == Undecided {
			b.Fatal("it is not decided")
		}
	}
}

func BenchmarkLearningAtAThousandOfferings(b *testing.B) {
	f, offers := largest(b)
	for b.Loop() {
		clear(f.plans.all)
		f.Choose(offers, Job{Work: 48 * time.Hour, Slack: 16 * time.Hour})
		f.work(b)
	}
}
