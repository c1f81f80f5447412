package pricing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	v100 = "ecs.gn6v-c8g1.2xlarge"
	a10  = "ecs.gn7i-c8g1.2xlarge"
)

func spotIn(zone string) Offering     { return Offering{InstanceType: v100, Zone: zone, Spot: true} }
func onDemandIn(zone string) Offering { return Offering{InstanceType: v100, Zone: zone} }

// market is a Source under the test's control.
type market struct {
	mu       sync.Mutex
	spot     map[string][]alicloud.SpotPrice // by type
	onDemand map[string]float64              // by type and zone
	broken   bool
	asked    []string
	// hold, where set, keeps answers back until it is closed.
	hold chan struct{}
}

func (m *market) ask(ctx context.Context, question string) (broken bool) {
	m.mu.Lock()
	m.asked = append(m.asked, question)
	broken, hold := m.broken, m.hold
	m.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return broken || ctx.Err() != nil
}

func (m *market) SpotPriceHistory(ctx context.Context, instanceType, zone string, isProtected bool, _ time.Time) ([]alicloud.SpotPrice, error) {
	question := "spot " + instanceType + zone
	if !isProtected {
		question += " unprotected"
	}
	if m.ask(ctx, question) {
		return nil, errors.New("the market is closed")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	prices := slices.Clone(m.spot[instanceType])
	for i := range prices {
		if !isProtected {
			prices[i].Spot /= 2
		}
	}
	return prices, nil
}

func (m *market) OnDemandPrice(ctx context.Context, instanceType, zone string) (float64, error) {
	if m.ask(ctx, "on-demand "+instanceType+" "+zone) {
		return 0, errors.New("the market is closed")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onDemand[instanceType+" "+zone], nil
}

func (m *market) Currency() string { return "CNY" }

func (m *market) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// questions empties and returns what was asked.
func (m *market) questions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	slices.Sort(asked)
	return asked
}

func quote(zone string, hour int, spot, onDemand float64) alicloud.SpotPrice {
	return alicloud.SpotPrice{ZoneID: zone, Spot: spot, OnDemand: onDemand, Time: time.Date(2025, 1, 1, hour, 0, 0, 0, time.UTC)}
}

// running starts a book inside a synctest bubble and stops it when the test ends.
func running(t *testing.T, m *market, offerings ...Offering) *Book {
	b := NewBook(BookOptions{Source: m})
	b.SetOfferings(offerings, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return b
}

func assertPrice(t *testing.T, b *Book, o Offering, want float64) {
	t.Helper()
	got, ok := b.Price(o)
	assert.Equal(t, want > 0, ok)
	assert.InDelta(t, want, got, 1e-9, "%+v", o)
}

func assertFreshPrice(t *testing.T, b *Book, o Offering, want float64) {
	t.Helper()
	got, ok := b.FreshPrice(o)
	assert.Equal(t, want > 0, ok)
	assert.InDelta(t, want, got, 1e-9, "%+v", o)
}

func TestWhatIsWantedIsThereWithoutAPriceOfItsOwnToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unpriced := Offering{InstanceType: a10, Zone: "b", Spot: true}
		b := running(t, &market{
			spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 3, 12)}}, onDemand: map[string]float64{v100 + " b": 12},
		}, spotIn("a"), spotIn("b"), unpriced)
		assertPrice(t, b, spotIn("b"), 12)
		assert.NotContains(t, b.Known(), unpriced)
		assert.Equal(t, map[Offering]float64{spotIn("a"): 3, spotIn("b"): 0, unpriced: 0}, b.Wanted())
	})
}

func TestPrices(t *testing.T) {
	tests := []struct {
		name     string
		spot     []alicloud.SpotPrice
		onDemand map[string]float64
		wanted   []Offering
		of       Offering
		price    float64 // 0 is unknown
	}{
		{"nothing is known", nil, nil, []Offering{spotIn("a")}, spotIn("a"), 0},
		{"the latest point counts", []alicloud.SpotPrice{quote("a", 3, 1, 9), quote("a", 5, 2, 9), quote("a", 4, 3, 9)}, nil, []Offering{spotIn("a")}, spotIn("a"), 2},
		{"of its zone", []alicloud.SpotPrice{quote("a", 3, 1, 9), quote("b", 5, 2, 9)}, nil, []Offering{spotIn("a")}, spotIn("a"), 1},
		{"a price of nothing is no price", []alicloud.SpotPrice{quote("a", 3, 0, 0)}, nil, []Offering{spotIn("a")}, spotIn("a"), 0},
		{"spot without a spot price costs on-demand", []alicloud.SpotPrice{quote("a", 3, 0, 9)}, nil, []Offering{spotIn("a")}, spotIn("a"), 9},
		{"or on-demand of another zone", []alicloud.SpotPrice{quote("b", 3, 1, 9), quote("c", 3, 1, 10)}, nil, []Offering{spotIn("a")}, spotIn("a"), 10},
		{"any zone costs the dearest", []alicloud.SpotPrice{quote("a", 3, 1, 9), quote("b", 3, 2, 9)}, nil, []Offering{spotIn("any")}, spotIn("any"), 2},
		{"on-demand is what is quoted", []alicloud.SpotPrice{quote("a", 3, 1, 9)}, map[string]float64{v100 + " a": 8}, []Offering{spotIn("a"), onDemandIn("a")}, onDemandIn("a"), 8},
		{"else what the history lists", []alicloud.SpotPrice{quote("a", 3, 1, 9)}, nil, []Offering{spotIn("a")}, onDemandIn("a"), 9},
		{"on-demand never costs spot", []alicloud.SpotPrice{quote("a", 3, 1, 0)}, nil, []Offering{spotIn("a")}, onDemandIn("a"), 0},
		{"on-demand in any zone", nil, map[string]float64{v100 + " ": 8}, []Offering{onDemandIn("any")}, onDemandIn("any"), 8},
		{"another type says nothing", []alicloud.SpotPrice{quote("a", 3, 1, 9)}, nil, []Offering{spotIn("a")}, Offering{InstanceType: a10, Zone: "a", Spot: true}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &market{spot: map[string][]alicloud.SpotPrice{v100: test.spot}, onDemand: test.onDemand}
				assertPrice(t, running(t, m, test.wanted...), test.of, test.price)
			})
		})
	}
}

func TestOneQuestionPerTypeForSpotAndPerZoneForOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{onDemand: map[string]float64{v100 + " a": 8, v100 + " b": 8}}
		b := running(t, m, spotIn("a"), spotIn("b"), spotIn("c"), onDemandIn("a"), onDemandIn("b"))
		first := []string{"on-demand " + v100 + " a", "on-demand " + v100 + " b", "spot " + v100}
		assert.Equal(t, first, m.questions())

		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Empty(t, m.questions(), "intervals are lengthened at random, never shortened")
		time.Sleep(30*time.Second + time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"spot " + v100}, m.questions())
		time.Sleep(67 * time.Minute)
		synctest.Wait()
		assert.Subset(t, m.questions(), first, "on-demand prices are looked at too, more rarely")

		b.SetOfferings([]Offering{onDemandIn("a")}, nil)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		assert.Empty(t, m.questions(), "nobody asks for spot any more")
	})
}

func TestNewOfferingsAreLookedUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9)}, a10: {quote("a", 1, 2, 9)}}}
		b := running(t, m, spotIn("a"))
		m.questions()
		time.Sleep(time.Second)
		newcomer := Offering{InstanceType: a10, Zone: "a", Spot: true}
		b.SetOfferings([]Offering{spotIn("a"), newcomer}, nil)
		assertPrice(t, b, newcomer, 0) // it is not waited for
		synctest.Wait()
		assertPrice(t, b, newcomer, 2)
		assert.Equal(t, []string{"spot " + a10}, m.questions(), "what is known is not asked again")

		b.SetOfferings(nil, nil)
		b.SetOfferings([]Offering{spotIn("a"), newcomer}, nil)
		synctest.Wait()
		assert.Empty(t, m.questions(), "coming back is not new")

		b.SetOfferings([]Offering{spotIn("a")}, nil)
		time.Sleep(18 * time.Minute)
		synctest.Wait()
		m.questions()
		b.SetOfferings([]Offering{spotIn("a"), newcomer}, nil)
		synctest.Wait()
		assert.Contains(t, m.questions(), "spot "+a10, "a price that is old by now is asked for again")
	})
}

func TestATypeThatIsBoughtWithoutAProtectedHourCostsThePriceWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 4, 9)}, a10: {quote("a", 1, 2, 9)}}}
		other := Offering{InstanceType: a10, Zone: "a", Spot: true}
		b := running(t, m, spotIn("a"), other)
		assertPrice(t, b, spotIn("a"), 4)
		m.questions()
		b.SetOfferings([]Offering{spotIn("a"), other}, sets.New(v100))
		synctest.Wait()
		assert.Equal(t, []string{"spot " + v100 + " unprotected"}, m.questions(), "at once, and the other is known")
		assertPrice(t, b, spotIn("a"), 2)
		assertPrice(t, b, other, 2)
	})
}

func TestNothingWaitsForASlowMarket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{hold: make(chan struct{}), spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9)}, a10: {quote("a", 1, 2, 9)}}}
		b := running(t, m, spotIn("a"))
		assertPrice(t, b, spotIn("a"), 0)
		late := Offering{InstanceType: a10, Zone: "a", Spot: true}
		b.SetOfferings([]Offering{spotIn("a"), late}, nil)
		b.SetOfferings([]Offering{spotIn("a"), late}, nil)
		close(m.hold)
		synctest.Wait()
		assertPrice(t, b, spotIn("a"), 1)
		assertPrice(t, b, late, 2)
		assert.Equal(t, map[Offering]float64{spotIn("a"): 1, late: 2}, b.Known())
	})
}

func TestAwaitFirstLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{hold: make(chan struct{}), spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9)}}}
		b := running(t, m, spotIn("a"), Offering{InstanceType: a10, Zone: "a"})
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, b.AwaitFirstLookup(brief), context.DeadlineExceeded)
		close(m.hold)
		require.NoError(t, b.AwaitFirstLookup(t.Context()), "a lookup that fails is a lookup")
		assertPrice(t, b, spotIn("a"), 1)
		require.NoError(t, NewBook(BookOptions{}).AwaitFirstLookup(t.Context()), "where nothing is wanted nothing is awaited")
	})
}

func TestFailuresKeepTheLastPriceAndAreRepeatedSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9)}}}
		b := running(t, m, spotIn("a"))
		errorsBefore := testutil.ToFloat64(refreshErrors.WithLabelValues("spot"))
		m.change(func() { m.broken = true })
		m.questions()
		time.Sleep(5*time.Minute + 31*time.Second)
		synctest.Wait()
		assertPrice(t, b, spotIn("a"), 1)
		assert.Greater(t, testutil.ToFloat64(refreshErrors.WithLabelValues("spot")), errorsBefore)

		m.questions()
		time.Sleep(time.Hour)
		synctest.Wait()
		asked := len(m.questions())
		assert.Greater(t, asked, 12, "sooner than every interval at first")
		assert.Less(t, asked, 20, "and no oftener than every interval in the end")

		m.change(func() {
			m.broken = false
			m.spot[v100] = []alicloud.SpotPrice{quote("a", 2, 3, 9)}
		})
		time.Sleep(5*time.Minute + 31*time.Second)
		synctest.Wait()
		assertPrice(t, b, spotIn("a"), 3)
	})
}

func TestAPriceIsFreshForAnHourAfterItWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9)}}}
		b := running(t, m, spotIn("a"))
		m.change(func() { m.broken = true })
		time.Sleep(time.Hour)
		assertFreshPrice(t, b, spotIn("a"), 1)
		time.Sleep(time.Nanosecond)
		assertFreshPrice(t, b, spotIn("a"), 0)
		assertPrice(t, b, spotIn("a"), 1) // good enough for comparing

		m.change(func() { m.broken = false })
		time.Sleep(5*time.Minute + 31*time.Second)
		synctest.Wait()
		assertFreshPrice(t, b, spotIn("a"), 1)
	})
}

func TestOneFailedLookMakesNoOnDemandPriceStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{onDemand: map[string]float64{v100 + " a": 8}}
		b := running(t, m, onDemandIn("a"))
		m.change(func() { m.broken = true })
		time.Sleep(34 * time.Minute) // the second look has failed
		m.change(func() { m.broken = false })
		time.Sleep(26*time.Minute + time.Nanosecond)
		synctest.Wait()
		assertFreshPrice(t, b, onDemandIn("a"), 8)
	})
}

func TestAFreshOnDemandPriceStandsInForASpotPriceThatIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{
			spot:     map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 0), quote("b", 1, 2, 0)}},
			onDemand: map[string]float64{v100 + " a": 8},
		}
		b := running(t, m, spotIn("a"), spotIn("b"), onDemandIn("a"))
		m.change(func() { m.spot[v100] = []alicloud.SpotPrice{quote("b", 1, 2, 0)} }) // a is not listed any more
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		assertFreshPrice(t, b, spotIn("a"), 8)
		assertFreshPrice(t, b, spotIn("b"), 2)
	})
}

func TestAZoneThatIsNotListedAnyMoreKeepsItsPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9), quote("b", 1, 2, 9)}}}
		b := running(t, m, spotIn("a"), spotIn("b"))
		m.change(func() { m.spot[v100] = []alicloud.SpotPrice{quote("a", 2, 4, 9)} })
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		assertPrice(t, b, spotIn("a"), 4)
		assertPrice(t, b, spotIn("b"), 2)
	})
}

func TestStoppingInTheMiddleOfALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{hold: make(chan struct{})}
		errorsBefore := testutil.ToFloat64(refreshErrors.WithLabelValues("spot"))
		b := NewBook(BookOptions{Source: m})
		b.SetOfferings([]Offering{spotIn("a")}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go b.Run(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait() // synctest fails the test if Run does not end
		assert.Equal(t, errorsBefore, testutil.ToFloat64(refreshErrors.WithLabelValues("spot")), "a look that was broken off is no failure")
	})
}

func TestConcurrentUse(t *testing.T) {
	m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1, 9)}}}
	b := NewBook(BookOptions{Source: m, Interval: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { b.Run(ctx) })
	var users sync.WaitGroup
	for n := range 20 {
		users.Go(func() {
			for i := range 50 {
				b.SetOfferings([]Offering{spotIn("a"), {InstanceType: fmt.Sprint(n, i), Zone: "a"}}, nil)
				b.Price(spotIn("a"))
				b.Known()
			}
		})
	}
	users.Wait()
	cancel()
	group.Wait()
}

func TestPriceMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		RegisterMetrics(registry)
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 1, 1.5, 9), quote("z", 1, 7, 9)}}}
		b := running(t, m, spotIn("a"), spotIn("nowhere"))
		time.Sleep(time.Minute)
		const want = `
# HELP gpu_spot_price_age_seconds Time since the price of an offering was last seen.
# TYPE gpu_spot_price_age_seconds gauge
gpu_spot_price_age_seconds{instance_type="ecs.gn6v-c8g1.2xlarge",purchase_option="on-demand",zone="a"} 60
gpu_spot_price_age_seconds{instance_type="ecs.gn6v-c8g1.2xlarge",purchase_option="spot",zone="a"} 60
# HELP gpu_spot_price_per_hour Last known price of an offering per instance-hour, in the account's currency, and of the on-demand instance that a spot one is compared with.
# TYPE gpu_spot_price_per_hour gauge
gpu_spot_price_per_hour{instance_type="ecs.gn6v-c8g1.2xlarge",purchase_option="on-demand",zone="a"} 9
gpu_spot_price_per_hour{instance_type="ecs.gn6v-c8g1.2xlarge",purchase_option="spot",zone="a"} 1.5
`
		names := []string{"gpu_spot_price_per_hour", "gpu_spot_price_age_seconds"}
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), names...))
		assertStale := func(count int) {
			t.Helper()
			want := fmt.Sprintf(`
# HELP gpu_spot_offerings_without_fresh_price Offerings whose price is unknown or older than --price-max-age: they are compared by the last known price, and not bought if they have a cap.
# TYPE gpu_spot_offerings_without_fresh_price gauge
gpu_spot_offerings_without_fresh_price %d
`, count)
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "gpu_spot_offerings_without_fresh_price"))
		}
		assertStale(0)
		b.SetOfferings([]Offering{spotIn("a"), spotIn("nowhere"), {InstanceType: a10, Zone: "a", Spot: true}}, nil)
		assertStale(1) // of a10 there is no price at all
		m.change(func() { m.broken = true })
		time.Sleep(time.Hour + time.Minute)
		assertStale(3)

		b.SetOfferings(nil, nil)
		count, err := testutil.GatherAndCount(registry, names...)
		require.NoError(t, err)
		assert.Zero(t, count, "what is not wanted vanishes")
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		assert.Empty(t, problems)
	})
}

func TestPricesOfWhatIsNotWantedAnyMoreAreForgottenAfterTwoDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &market{spot: map[string][]alicloud.SpotPrice{v100: {quote("a", 3, 1, 9)}, a10: {quote("a", 3, 2, 8)}}}
		wanted := Offering{InstanceType: a10, Zone: "a", Spot: true}
		b := running(t, m, spotIn("a"), wanted)
		m.change(func() { m.broken = true })
		b.SetOfferings([]Offering{wanted}, nil)
		time.Sleep(47 * time.Hour)
		b.SetOfferings([]Offering{wanted}, nil)
		assertPrice(t, b, spotIn("a"), 1)
		time.Sleep(2 * time.Hour)
		b.SetOfferings([]Offering{wanted}, nil)
		assertPrice(t, b, spotIn("a"), 0)
		assertPrice(t, b, wanted, 2) // the last one that is known, however old
	})
}
