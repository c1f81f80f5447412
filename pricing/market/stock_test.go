package market

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

// says enters what is said of the offering at a time.
func says(m *Memory, o pricing.Offering, category alicloud.StockCategory, after time.Duration) {
	m.Observe(nil, at(after))
	m.NoteStock([]Said{{o, category, 3}}, at(after))
}

// buy makes purchases of an instance each, of which some are refused.
func buy(m *Memory, o pricing.Offering, purchases, refused int) {
	for n := range purchases {
		m.Asked(o, 1)
		if n < refused {
			m.Refused(o, 1)
		}
	}
}

// usefulCost returns what an hour is expected to cost on an offering, whose on-demand price is 18.
func usefulCost(m *Memory, o pricing.Offering, price float64) float64 {
	return pricing.UsefulCost(price, 18, m.Of(o), pricing.Terms{Restart: 10 * time.Minute})
}

func TestWhatIsSaidToBeOutOfStockIsNotTriedFirstUntilItIsSaidToBeBack(t *testing.T) {
	m := NewMemory()
	cheaper, dearer := 4., 4.1
	assert.Less(t, usefulCost(m, here, cheaper), usefulCost(m, there, dearer))
	says(m, here, alicloud.WithoutStock, time.Hour)
	assert.Greater(t, usefulCost(m, here, cheaper), usefulCost(m, there, dearer))
	says(m, here, alicloud.WithStock, time.Hour+8*time.Minute)
	assert.Less(t, usefulCost(m, here, cheaper), usefulCost(m, there, dearer))
}

func TestWhereNothingIsSaidOrLearntNothingChanges(t *testing.T) {
	m, silent := NewMemory(), NewMemory()
	for _, each := range []*Memory{m, silent} {
		buy(each, here, 20, 3)
	}
	says(m, here, alicloud.WithStock, time.Hour)
	silent.Observe(nil, at(time.Hour))
	says(m, other, "PerhapsTomorrow", time.Hour)
	assert.InDelta(t, silent.Of(here).Refusal, m.Of(here).Refusal, 1e-9)
	assert.Equal(t, silent.Of(other), m.Of(other), "a word that is not known says nothing")

	says(m, here, alicloud.WithoutStock, 2*time.Hour)
	silent.Observe(nil, at(2*time.Hour))
	assert.Greater(t, m.Of(here).Refusal, silent.Of(here).Refusal)
	m.Observe(nil, at(2*time.Hour+stockFresh+time.Minute))
	silent.Observe(nil, at(2*time.Hour+stockFresh+time.Minute))
	assert.InDelta(t, silent.Of(here).Refusal, m.Of(here).Refusal, 1e-9, "it was said too long ago")
}

func TestWhatACategoryMeansIsLearnt(t *testing.T) {
	m := NewMemory()
	says(m, here, alicloud.WithoutStock, time.Hour)
	says(m, other, alicloud.WithoutStock, time.Hour)
	before := m.Of(other).Refusal
	assert.InDelta(t, priorRefusals[alicloud.WithoutStock], before, .001)
	buy(m, here, 100, 0)
	assert.Less(t, m.Of(other).Refusal, .1, "what is said to be out of stock could be bought a hundred times")

	says(m, here, alicloud.WithStock, 2*time.Hour)
	buy(m, here, 100, 60)
	newcomer := pricing.Offering{InstanceType: "v100", Zone: "c", Spot: true}
	says(m, newcomer, alicloud.WithStock, 2*time.Hour)
	assert.Greater(t, m.Of(newcomer).Refusal, .5, "what is said to be in stock was refused more often than not")
}

// The answers are wrong in 15 of 100 cases, and purchases are made whatever is said.
func TestCategoriesThatAreOftenWrongAreBelievedAsFarAsTheyAreRight(t *testing.T) {
	m, random := NewMemory(), rand.New(rand.NewSource(1))
	for n := range 2000 {
		isUp := random.Intn(2) == 0
		category := alicloud.WithoutStock
		if isUp != (random.Float64() < .15) {
			category = alicloud.WithStock
		}
		says(m, here, category, time.Duration(n)*8*time.Minute)
		refused := 1
		if isUp {
			refused = 0
		}
		buy(m, here, 1, refused)
	}
	assert.InDelta(t, .15, m.stock.refusalIn(hint{category: alicloud.WithStock}), .05)
	assert.InDelta(t, .85, m.stock.refusalIn(hint{category: alicloud.WithoutStock}), .05)
}

func TestARefusalOutranksWhatIsSaid(t *testing.T) {
	m := NewMemory()
	says(m, there, alicloud.ClosedWithStock, time.Minute)
	buy(m, there, 200, 0) // it is better than nothing said
	says(m, here, alicloud.ClosedWithStock, time.Hour)
	says(m, here, alicloud.ClosedWithStock, time.Hour+8*time.Minute)
	says(m, other, alicloud.ClosedWithStock, time.Hour+8*time.Minute)
	without := NewMemory()
	buy(without, there, 200, 0)
	without.Observe(nil, at(time.Hour+8*time.Minute))
	require.Less(t, m.Of(here).Refusal, without.Of(here).Refusal)
	buy(m, here, 5, 5)
	buy(without, here, 5, 5)
	assert.InDelta(t, without.Of(here).Refusal, m.Of(here).Refusal, .01)
	says(m, here, alicloud.ClosedWithStock, time.Hour+16*time.Minute)
	assert.False(t, m.Present([]pricing.Offering{here}, at(time.Hour+16*time.Minute)).AnyUp(), "the same is said as before")

	says(m, here, alicloud.WithStock, time.Hour+24*time.Minute)
	says(m, here, alicloud.WithStock, time.Hour+32*time.Minute)
	assert.True(t, m.Present([]pricing.Offering{here}, at(time.Hour+32*time.Minute)).AnyUp(), "it is said to be back")
}

func TestWhatIsSaidTwiceIsSeenInTheHistoryUnlessInstancesAreKept(t *testing.T) {
	m := NewMemory()
	isUp := func(now time.Duration) bool { return m.Present([]pricing.Offering{here}, at(now)).AnyUp() }
	says(m, here, alicloud.WithStock, 8*time.Minute)
	assert.False(t, m.Seen(here), "a single answer is wrong too often")
	says(m, here, alicloud.WithStock, 16*time.Minute)
	assert.True(t, isUp(16*time.Minute))
	says(m, here, alicloud.WithoutStock, 24*time.Minute)
	assert.True(t, isUp(24*time.Minute))
	says(m, here, alicloud.WithoutStock, 32*time.Minute)
	assert.False(t, isUp(32*time.Minute))

	m.Observe([]Living{{ID: "i-1", Offering: here}}, at(40*time.Minute))
	m.NoteStock([]Said{{here, alicloud.WithoutStock, 3}}, at(40*time.Minute+time.Second))
	assert.True(t, isUp(40*time.Minute+time.Second))
	m.NoteStock([]Said{{here, alicloud.WithoutStock, 3}}, at(41*time.Minute))
	assert.True(t, isUp(41*time.Minute), "the list of instances is not read again yet")
}

func TestWhatIsSaidTwiceInOneAnswerIsSaidOnce(t *testing.T) {
	m := NewMemory()
	m.Observe(nil, at(0))
	m.NoteStock([]Said{{here, alicloud.WithStock, 3}, {here, alicloud.WithStock, 3}}, at(time.Minute))
	assert.False(t, m.Seen(here))
}

func TestAnOfferingWithoutAPriceIsNotSeenAsOneThatCostsNothing(t *testing.T) {
	m := NewMemory()
	m.Observe(nil, at(0))
	for minute := 8; minute <= 24; minute += 8 {
		m.NoteStock([]Said{{here, alicloud.WithStock, 0}, {there, alicloud.WithStock, 4}}, at(time.Duration(minute)*time.Minute))
	}
	assert.False(t, m.Seen(here))
	h, _ := m.History([]pricing.Offering{there}, []float64{1})
	up, price := h.At(0, at(24*time.Minute))
	assert.True(t, up)
	assert.Equal(t, 4., price)
}

func TestWhatIsSaidAfterTheInstancesWereListedIsRememberedInOrder(t *testing.T) {
	m := NewMemory()
	says(m, here, alicloud.WithStock, 8*time.Minute)
	says(m, here, alicloud.WithStock, 16*time.Minute)
	m.NoteStock([]Said{{here, alicloud.WithStock, 3}}, at(24*time.Minute))
	bought := []Living{{ID: "i-1", Offering: here, Created: at(20 * time.Minute), Price: 5}}
	m.Observe(bought, at(24*time.Minute-5*time.Second)) // a listing that began before that was said
	m.Observe(bought, at(25*time.Minute))
	saved, err := m.Encode()
	require.NoError(t, err)
	next := NewMemory()
	require.NoError(t, next.Decode(saved), "nothing is forgotten")
	assert.Equal(t, m.past.runs, next.past.runs)
	h, _ := next.History([]pricing.Offering{here}, []float64{1})
	_, price := h.At(0, at(25*time.Minute))
	assert.Equal(t, 5., price)
}

func TestARefusalOutranksWhatWasSaidSinceTheInstancesWereListed(t *testing.T) {
	m := NewMemory()
	says(m, there, alicloud.ClosedWithStock, time.Minute)
	buy(m, there, 200, 0) // it is better than nothing said
	m.Observe(nil, at(time.Hour))
	m.NoteStock([]Said{{here, alicloud.ClosedWithStock, 3}}, at(time.Hour+10*time.Second))
	without := NewMemory()
	buy(without, there, 200, 0)
	without.Observe(nil, at(time.Hour))
	for _, each := range []*Memory{m, without} {
		buy(each, here, 5, 5)
	}
	assert.InDelta(t, without.Of(here).Refusal, m.Of(here).Refusal, .01)
}

func TestWhatIsSaidAndLearntSurvivesARestart(t *testing.T) {
	m := NewMemory()
	says(m, here, alicloud.ClosedWithStock, time.Hour)
	says(m, here, alicloud.ClosedWithStock, time.Hour+8*time.Minute)
	buy(m, here, 30, 25)
	saved, err := m.Encode()
	require.NoError(t, err)
	restarted := NewMemory()
	require.NoError(t, restarted.Decode(saved))
	for _, o := range []pricing.Offering{here, there, other} {
		assert.InDelta(t, m.Of(o).Refusal, restarted.Of(o).Refusal, 1e-9, o)
	}
	assert.Equal(t, m.stock.refusalIn(hint{category: alicloud.ClosedWithStock}), restarted.stock.refusalIn(hint{category: alicloud.ClosedWithStock}))
	says(restarted, here, alicloud.ClosedWithStock, time.Hour+16*time.Minute)
	assert.Equal(t, m.stock.said[place{here.InstanceType, here.Zone}].Since, restarted.stock.said[place{here.InstanceType, here.Zone}].Since)
}

// shop answers what is in stock, and notes when it was asked.
type shop struct {
	mu    sync.Mutex
	asked map[string][]time.Time
	err   error
	// strengths are what is said of each pool, strengthErr is why nothing is. strengthsAsked counts.
	strengths      map[string][]alicloud.OfferingStrength
	strengthErr    error
	strengthsAsked int
}

func (s *shop) SpotStrengths(_ context.Context, pool string) ([]alicloud.OfferingStrength, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strengthsAsked++
	return s.strengths[pool], s.strengthErr
}

// pools returns the pools of which anything is said.
func (s *shop) pools() []string { return slices.Sorted(maps.Keys(s.strengths)) }

func (s *shop) SpotStock(_ context.Context, instanceType string) ([]alicloud.Stock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[instanceType] = append(s.asked[instanceType], time.Now())
	return []alicloud.Stock{{ZoneID: "a", Category: alicloud.WithoutStock}}, s.err
}

func (s *shop) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

type notebook struct {
	mu    sync.Mutex
	lines []string
}

func (n *notebook) Eventf(eventType, reason, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, eventType+" "+reason+" "+fmt.Sprintf(format, args...))
}

// watching runs a Watch of three offerings, of two instance types, until the test ends.
func watching(t *testing.T, m *Memory, s *shop, n *notebook) {
	ctx, cancel := context.WithCancel(t.Context())
	w := NewWatch(WatchConfig{Memory: m, Source: s, Clock: clock.RealClock{}, Events: n, Pools: s.pools,
		Offerings: func() map[pricing.Offering]float64 {
			return map[pricing.Offering]float64{here: 3, there: 3, other: 3, {InstanceType: "big", Zone: "a"}: 3}
		}})
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestEachInstanceTypeIsObservedEveryTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := NewMemory(), &shop{asked: map[string][]time.Time{}}
		watching(t, m, s, &notebook{})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Len(t, s.asked, 2, "spot instances alone")
		for instanceType, times := range s.asked {
			most := 0.
			gaps := map[time.Duration]bool{}
			for n := range len(times) - 1 {
				gap := times[n+1].Sub(times[n])
				gaps[gap] = true
				most = math.Max(most, gap.Minutes())
			}
			assert.Less(t, most, 10., instanceType)
			assert.Greater(t, len(gaps), 10, "they do not come in step with those of others")
		}
		assert.Greater(t, m.Of(here).Refusal, .5)
		assert.False(t, m.stock.read.IsZero())
	})
}

// store answers like a cloud, which takes its time, for all zones.
type store struct {
	times map[string][]time.Time
	calls []time.Time
	fails bool
	// pools are asked for their strengths.
	pools []string
}

func (s *store) SpotStrengths(context.Context, string) ([]alicloud.OfferingStrength, error) {
	s.calls = append(s.calls, time.Now())
	time.Sleep(300 * time.Millisecond)
	return nil, nil
}

func (s *store) SpotStock(_ context.Context, instanceType string) (found []alicloud.Stock, err error) {
	s.times[instanceType], s.calls = append(s.times[instanceType], time.Now()), append(s.calls, time.Now())
	time.Sleep(300 * time.Millisecond)
	if s.fails {
		return nil, errors.New("a timeout")
	}
	for zone := range 10 {
		found = append(found, alicloud.Stock{ZoneID: string(rune('a' + zone)), Category: alicloud.WithStock})
	}
	return found, nil
}

// observing runs a Watch of so many instance types in one zone for a time.
func observing(t *testing.T, m *Memory, s *store, types int, until time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), until)
	defer cancel()
	w := NewWatch(WatchConfig{Memory: m, Source: s, Clock: clock.RealClock{}, Events: &notebook{}, Pools: func() []string { return s.pools }, Offerings: func() map[pricing.Offering]float64 {
		wanted := map[pricing.Offering]float64{}
		for n := range types {
			wanted[pricing.Offering{InstanceType: fmt.Sprint("type-", n), Zone: "a", Spot: true}] = 3
		}
		return wanted
	}})
	w.Run(ctx)
}

func TestManyInstanceTypesAreObservedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := NewMemory(), &store{times: map[string][]time.Time{}, pools: make([]string, 100)}
		observing(t, m, s, 900, 3*time.Hour)
		require.Len(t, s.times, 900, "none is left out because the others take so long")
		for instanceType, times := range s.times {
			for n := range len(times) - 1 {
				require.Less(t, times[n+1].Sub(times[n]), 10*time.Minute, instanceType)
			}
		}
		const minute = 150
		for n := range len(s.calls) - minute {
			require.Greater(t, s.calls[n+minute].Sub(s.calls[n]), time.Minute, "of 1000 that an account has")
		}
		assert.Len(t, m.stock.said, 900, "nobody asked for the other zones")
		assert.False(t, m.stock.read.IsZero())
	})
}

func TestAnObservationThatFailsInPartIsNotWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := NewMemory(), &store{times: map[string][]time.Time{}, fails: true}
		observing(t, m, s, 3, 20*time.Minute)
		assert.Len(t, s.times, 3)
		assert.True(t, m.stock.read.IsZero())
	})
}

func TestWhoMayNotObserveSaysSoOnceAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, n := NewMemory(), &shop{asked: map[string][]time.Time{}}, &notebook{}
		s.err = &alicloud.Error{Service: "ecs", Action: "DescribeAvailableResource", Code: "Forbidden.RAM", Class: alicloud.Unauthorized}
		watching(t, m, s, n)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, n.lines, 1)
		assert.Contains(t, n.lines[0], "Warning SpotStockUnobserved")
		assert.Contains(t, n.lines[0], "ecs:DescribeAvailableResource")
		assert.InDelta(t, .05, m.Of(here).Refusal, .001, "it is as if nobody had asked")
		assert.True(t, m.stock.read.IsZero())

		s.fail(errors.New("a timeout"))
		time.Sleep(time.Hour)
		s.fail(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, n.lines, 1)
		assert.Greater(t, m.Of(here).Refusal, .5)
	})
}
