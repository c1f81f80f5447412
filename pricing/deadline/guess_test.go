package deadline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

func TestWhereTooLittleWasSeenAJobWaitsForSpotAsLongAsItsSlackAllows(t *testing.T) {
	for name, f := range map[string]*fixture{"a day": newFixture(1), "nothing": newFixture(0)} {
		other := pricing.Offering{InstanceType: "a10", Zone: "b", Spot: true}
		two := NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: other, Share: 1}, {Offering: onDemand, Share: 1}})
		ask := func(offers *Offers, work, slack time.Duration) Choice {
			job := Job{Work: work, Slack: slack}
			f.Choose(offers, job)
			f.work(t)
			return f.Choose(offers, job)
		}
		assert.Equal(t, Any, ask(f.offers, 24*time.Hour, 23*time.Hour), name)
		assert.Equal(t, Spot, ask(f.offers, 23*time.Hour, 23*time.Hour), "%s: once some of the work is done", name)
		assert.Equal(t, Any, ask(two, 24*time.Hour, 12*time.Hour), "%s: no price of the other is known", name)
		f.prices[other] = 2
		assert.Equal(t, Spot, ask(two, 24*time.Hour, 12*time.Hour), "%s: one of two is back sooner", name)
		alike := pricing.Offering{InstanceType: "l20", Zone: "a", Spot: true}
		f.prices[alike] = 1
		inOneZone := NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: alike, Share: 1}, {Offering: onDemand, Share: 1}})
		assert.Equal(t, Any, ask(inOneZone, 24*time.Hour, 12*time.Hour), "%s: two types in one zone may be gone together", name)
		f.prices[other] = 2.9
		assert.Equal(t, Any, ask(two, 24*time.Hour, 12*time.Hour), "%s: the other costs as much as on-demand, or more", name)
	}
}

func TestWhoseTimeIsWorthMoreThanSpotSavesDoesNotWaitForItOnAGuess(t *testing.T) {
	f := newFixture(0)
	for name, c := range map[string]struct {
		stated *float64
		want   Choice
	}{
		"nothing is stated": {nil, Spot}, "half of what spot saves": {ptr.To(1.), Spot}, "twice as much": {ptr.To(4.), Any}, "the on-demand price": {ptr.To(0.), Any},
	} {
		assert.Equal(t, c.want, f.Choose(f.offers, Job{Work: 24 * time.Hour, Slack: 48 * time.Hour, ValueOfTime: c.stated}), name)
	}
}

func TestSpotOnWhichAllIsLostIsNotWaitedForOnAGuess(t *testing.T) {
	f, job := newFixture(0), Job{Work: 24 * time.Hour, Slack: 24 * time.Hour}
	assert.Equal(t, Spot, f.Choose(f.offers, job))
	var lost []market.Living
	for n := range 200 {
		lost = append(lost, market.Living{ID: fmt.Sprint(n), Offering: spot, Price: 1, Lost: true})
	}
	f.memory.Observe(lost, start)
	assert.Equal(t, Any, f.Choose(f.offers, job))
}

func TestOnAGuessAJobStaysOnDemandIfThereIsNoTimeForMoreReclaims(t *testing.T) {
	f := newFixture(0)
	stays := func(slack time.Duration) bool {
		better, decided := f.Better(f.offers, Job{Work: 24 * time.Hour, Slack: slack})
		assert.Empty(t, better)
		return decided
	}
	assert.False(t, stays(5*time.Hour), "nothing is decided")
	assert.True(t, stays(4*time.Hour+50*time.Minute))
	f.prices[spot] = 3.2
	assert.True(t, stays(24*time.Hour))
}

func TestNothingIsGuessedWithoutPrices(t *testing.T) {
	for _, unknown := range []pricing.Offering{spot, onDemand} {
		f, job := newFixture(0), Job{Work: 24 * time.Hour, Slack: 48 * time.Hour}
		delete(f.prices, unknown)
		assert.Equal(t, Undecided, f.Choose(f.offers, job), unknown)
		_, decided := f.Better(f.offers, job)
		assert.False(t, decided, unknown)
	}
}

func TestWhoeverHurriesGetsAGuessWhileItIsLearnt(t *testing.T) {
	f, job := newFixture(5), Job{Work: 24 * time.Hour, Slack: 48 * time.Hour}
	f.isRunning.Store(true)
	assert.Equal(t, Learning, f.Choose(f.offers, job))
	job.Hurries = true
	assert.Equal(t, Spot, f.Choose(f.offers, job))
}

// The memory was empty when the first job asked, and is read meanwhile.
func TestATableThatIsComputedOnceTheMarketIsReadIsWaitedFor(t *testing.T) {
	saved, err := newFixture(5).memory.Encode()
	assert.NoError(t, err)
	f := newFixture(0)
	f.ask()
	f.work(t)
	f.isRunning.Store(true)
	assert.Equal(t, Any, f.ask(), "there is nothing to learn from")
	assert.NoError(t, f.memory.Decode(saved))
	f.clock.Step(5 * time.Second)
	assert.Equal(t, Learning, f.ask())
	f.work(t)
	assert.Equal(t, Spot, f.ask())
}
