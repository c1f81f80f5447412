package market

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/pricing"
)

// kept are so many instances of the offering, of which so many are being reclaimed.
func kept(o pricing.Offering, count, reclaiming int, created time.Duration) (all []Living) {
	for n := range count {
		all = append(all, Living{ID: fmt.Sprint(o, n), Offering: o, Created: at(created), Lost: n < reclaiming, Price: 2})
	}
	return all
}

// stateOf returns what is known of the offering at a time.
func stateOf(m *Memory, o pricing.Offering, now time.Duration) (up, gone bool, outage time.Duration) {
	p := m.Present([]pricing.Offering{o}, at(now))
	return p.Up[0], p.Gone[0], p.Outage
}

func TestAnOfferingIsUpWhileItsInstancesAreKeptAndDownAfterALossOrARefusal(t *testing.T) {
	m := NewMemory()
	m.Observe(kept(here, 1, 0, 0), at(0))
	m.Observe(kept(here, 1, 0, 0), at(30*time.Minute))
	up, gone, _ := stateOf(m, here, 30*time.Minute)
	assert.True(t, up)
	assert.False(t, gone)

	m.Observe(kept(here, 1, 1, 0), at(40*time.Minute))
	m.Observe(nil, at(50*time.Minute))
	up, _, outage := stateOf(m, here, time.Hour)
	assert.False(t, up, "until something else is seen")
	assert.Equal(t, 20*time.Minute, outage)

	m.Observe(kept(here, 1, 0, time.Hour), at(61*time.Minute))
	up, _, outage = stateOf(m, here, 61*time.Minute)
	assert.True(t, up)
	assert.Zero(t, outage)

	m.Observe(nil, at(2*time.Hour))
	m.Refused(here, 1)
	up, _, outage = stateOf(m, here, 3*time.Hour)
	assert.False(t, up)
	assert.Equal(t, time.Hour, outage)
	up, _, _ = stateOf(m, here, 9*time.Hour)
	assert.True(t, up, "nobody knows, so a purchase has to tell")
	assert.False(t, m.Seen(there))
	assert.Equal(t, 3, m.Changes())
}

func TestALossOfAFewInstancesOfManyIsNotThatOfTheOffering(t *testing.T) {
	m := NewMemory()
	m.Observe(kept(here, 10, 0, 0), at(0))
	m.Observe(kept(here, 10, 2, 0), at(time.Minute))
	up, _, _ := stateOf(m, here, time.Minute)
	assert.True(t, up)
	m.Observe(kept(here, 10, 5, 0), at(2*time.Minute))
	up, _, _ = stateOf(m, here, 2*time.Minute)
	assert.False(t, up)
}

func TestNobodyCountsOnAnOfferingThatRefusedThoughItsInstancesAreKept(t *testing.T) {
	m := NewMemory()
	m.Observe(kept(here, 1, 0, 0), at(0))
	m.Refused(here, 1)
	m.Observe(kept(here, 1, 0, 0), at(10*time.Minute))
	up, gone, outage := stateOf(m, here, 10*time.Minute)
	assert.True(t, up, "its life goes on")
	assert.True(t, gone)
	assert.Equal(t, 10*time.Minute, outage)

	m.Observe(append(kept(here, 1, 0, 0), Living{ID: "new", Offering: here, Created: at(11 * time.Minute)}), at(12*time.Minute))
	_, gone, _ = stateOf(m, here, 12*time.Minute)
	assert.False(t, gone, "it has delivered since")
}

func TestAnOutageLastsAsLongAsPurchasesAreRefusedAgainAndAgain(t *testing.T) {
	m := NewMemory()
	refusedAt := func(now time.Duration) time.Duration {
		m.Observe(kept(here, 1, 0, 0), at(now))
		m.Refused(here, 1)
		_, gone, outage := stateOf(m, here, now)
		require.True(t, gone)
		return outage
	}
	assert.Zero(t, refusedAt(0))
	assert.Equal(t, 50*time.Minute, refusedAt(50*time.Minute))
	assert.Equal(t, 100*time.Minute, refusedAt(100*time.Minute), "it began with the first")
	assert.Zero(t, refusedAt(162*time.Minute), "nobody knows what was in between")
}

func TestRunsBecomeObservations(t *testing.T) {
	m := NewMemory()
	for minute := 0; minute <= 60; minute += 5 {
		m.Observe(kept(here, 1, 0, 0), at(time.Duration(minute)*time.Minute))
	}
	m.Observe(kept(here, 1, 1, 0), at(65*time.Minute))
	h, since := m.History([]pricing.Offering{there, here}, []float64{1, 3})
	assert.Equal(t, at(0), since)
	up, price := h.At(1, at(59*time.Minute))
	assert.True(t, up)
	assert.Equal(t, 6., price)
	up, _ = h.At(1, at(65*time.Minute))
	assert.False(t, up)
	assert.Len(t, h.offerings[1].at, 8, "every ten minutes, and at the loss")
	assert.Empty(t, h.offerings[0].at)
	_, since = m.History([]pricing.Offering{there}, []float64{1})
	assert.Zero(t, since)
}

func TestThePastSurvivesARestart(t *testing.T) {
	m := NewMemory()
	m.Observe(kept(here, 1, 0, 0), at(0))
	m.Observe(kept(here, 1, 0, 0), at(50*time.Minute))
	m.Observe(kept(here, 1, 1, 0), at(55*time.Minute))
	text, err := m.Encode()
	require.NoError(t, err)
	next := NewMemory()
	require.NoError(t, next.Decode(text))
	assert.Equal(t, m.past.runs, next.past.runs)
	next.Observe(kept(here, 1, 0, 2*time.Hour), at(2*time.Hour))
	h, since := next.History([]pricing.Offering{here}, []float64{1})
	assert.Equal(t, at(0), since)
	for minute, want := range map[int]bool{20: true, 56: false, 121: true} {
		up, _ := h.At(0, at(time.Duration(minute)*time.Minute))
		assert.Equal(t, want, up, minute)
	}
	_, err = decodePast([]placePast{{Runs: [][4]float64{{10, -1, 1, 2}}}})
	assert.Error(t, err)
}

func TestThePastIsBounded(t *testing.T) {
	m := NewMemory()
	random := rand.New(rand.NewPCG(1, 2))
	var all []pricing.Offering
	for n := range 1000 {
		all = append(all, pricing.Offering{InstanceType: fmt.Sprintf("ecs.gn%d-c8g1.%dxlarge", n/200, n%40), Zone: fmt.Sprintf("cn-hangzhou-%c", 'a'+n/40%5), Spot: true})
	}
	for step := range 200 {
		var living []Living
		for _, o := range all {
			if random.Float64() < .4 {
				living = append(living, Living{ID: o.InstanceType + o.Zone, Offering: o, Lost: random.Float64() < .3, Price: 1 + random.Float64()})
			}
		}
		m.Observe(living, at(time.Duration(step)*4*time.Hour))
	}
	runs := 0
	for _, each := range m.past.runs {
		runs += len(each)
	}
	assert.LessOrEqual(t, runs, mostRuns+len(all), "and what came since it was pruned")
	assert.Greater(t, runs, mostRuns/2)
	text, err := m.Encode()
	require.NoError(t, err)
	t.Logf("%d runs are saved in %d bytes", runs, len(text))
	assert.Less(t, len(text), 500_000, "a ConfigMap holds a megabyte, and what was set aside may be beside it")

	m.Observe(nil, at(100*24*time.Hour))
	assert.Empty(t, m.past.runs)
}

func TestMetricsSayHowOldWhatIsKnownIs(t *testing.T) {
	m := NewMemory()
	fake := clocktesting.NewFakeClock(at(7 * time.Hour))
	published.Store(NewKeeper(KeeperConfig{Memory: m, Clock: fake}))
	t.Cleanup(func() { published.Store(nil) })
	m.Observe(kept(here, 1, 0, 0), at(0))
	m.Observe(kept(there, 1, 0, 0), at(7*time.Hour-time.Minute))
	m.StockRead(at(7*time.Hour - 2*time.Minute))
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	gathered, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range gathered {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = metric.GetGauge().GetValue()
		}
	}
	assert.Equal(t, map[string]float64{
		"gpu_spot_market_age_seconds": 60, "gpu_spot_market_offerings up": 1, "gpu_spot_market_offerings down": 0, "gpu_spot_market_offerings stale": 1,
		"gpu_spot_market_stock_age_seconds": 120, "gpu_spot_market_stock_refusal WithStock": .05, "gpu_spot_market_stock_refusal ClosedWithStock": .2,
		"gpu_spot_market_stock_refusal WithoutStock": .85, "gpu_spot_market_stock_refusal ClosedWithoutStock": .85,
		"gpu_spot_market_strength_refusal Strong": .05, "gpu_spot_market_strength_refusal Medium": .05, "gpu_spot_market_strength_refusal Weak": .05,
	}, values)
}
