package ledger

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/pricing"
)

var (
	spot  = pricing.Offering{InstanceType: "ecs.gn6i", Zone: "a", Spot: true}
	start = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	train = Job{Namespace: "team", System: "pytorch", Name: "train"}
)

// world is everything that a ledger asks.
type world struct {
	mu        sync.Mutex // of what follows as far as Run uses it
	instances []Instance
	at        time.Time
	prices    map[pricing.Offering]float64
	bought    map[time.Time]float64 // what instances cost that were created then, if that is not the price

	saved            []byte
	loadErr, saveErr error
	saves            int
	ended            map[Job]Amounts
	anew             error
	aside            []byte
	pricesPending    bool
	currency         string
	deaf             bool
}

func (w *world) Instances() ([]Instance, time.Time) { return w.instances, w.at }
func (w *world) SetAside()                          { w.aside = w.saved }

func (w *world) ExactPrice(o pricing.Offering) (float64, bool) {
	price, ok := w.prices[o]
	return price, ok && !w.pricesPending
}

func (w *world) Price(o pricing.Offering) (float64, bool) { price, ok := w.prices[o]; return price, ok }

func (w *world) PriceAt(o pricing.Offering, at time.Time) (float64, bool) {
	if price, bought := w.bought[at]; bought {
		return price, true
	}
	return w.Price(o)
}

func (w *world) MarketCost(o pricing.Offering, from, to time.Time) (float64, bool) {
	price, known := w.Price(o)
	return price * to.Sub(from).Hours(), known
}

func (w *world) Currency() string { return w.currency }

func (w *world) Load(context.Context) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.saved, w.loadErr
}

// failLoad sets what Load returns.
func (w *world) failLoad(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loadErr = err
}

// saveCount returns how often the totals were saved.
func (w *world) saveCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.saves
}

func (w *world) end(_ context.Context, job Job, a Amounts, _ string) bool {
	w.ended[job] = a
	return !w.deaf
}

func (w *world) Save(_ context.Context, state []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.saveErr == nil {
		w.saved = state
		w.saves++
	}
	return w.saveErr
}

func newWorld() *world {
	onDemand := spot
	onDemand.Spot = false
	return &world{currency: "CNY", ended: map[Job]Amounts{}, at: start, prices: map[pricing.Offering]float64{spot: 3, onDemand: 10}}
}

// ledger returns one that has loaded what was saved.
func (w *world) ledger(t *testing.T) *Ledger {
	l := New(Config{
		Inventory: w, Prices: w, Store: w, Clock: clock.RealClock{}, Ended: w.end, Anew: func(err error) { w.anew = err },
	})
	require.True(t, l.load(t.Context()))
	return l
}

// accountAt accounts until so long after the start.
func (w *world) accountAt(t *testing.T, l *Ledger, after time.Duration, instances ...Instance) {
	w.at, w.instances = start.Add(after), instances
	require.True(t, l.account(t.Context()))
}

func TestAnInstanceCostsItsMarketPriceFromItsCreationToItsRelease(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	i := Instance{ID: "i-1", Pool: "asg-1", Offering: spot, GPUs: 8, Created: start.Add(time.Minute)}
	w.accountAt(t, l, 31*time.Minute, i)
	w.prices[spot] = 6
	w.accountAt(t, l, 61*time.Minute, i)
	w.accountAt(t, l, 67*time.Minute) // it is gone since some time of the last six minutes

	r := l.Report()
	assert.InDelta(t, .5*3+.5*6+.05*6, r.Total.Cost, 1e-9)
	assert.InDelta(t, 1.05*10, r.Total.OnDemand, 1e-9)
	assert.InDelta(t, 1.05*8, r.Total.GPUHours, 1e-9)
	assert.Zero(t, r.Total.Used)
	assert.Equal(t, "CNY", r.Currency)
	assert.Equal(t, Offering{"asg-1", "ecs.gn6i", "a", "spot"}, r.Offerings[0].Offering)
}

func TestAnInstanceCostsThePriceOfItsPurchaseWhileItIsProtected(t *testing.T) {
	for name, test := range map[string]struct {
		protected time.Duration
		spot      bool
		want      float64
	}{
		"an hour":   {protected: time.Hour, spot: true, want: 2*1 + 3*.5},
		"not":       {spot: true, want: 3 * 1.5},
		"on demand": {protected: time.Hour, want: 10 * 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.bought = map[time.Time]float64{start: 2}
			l := w.ledger(t)
			i := Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Protected: test.protected}
			i.Offering.Spot = test.spot
			w.accountAt(t, l, 0)
			w.accountAt(t, l, 40*time.Minute, i)
			w.accountAt(t, l, 80*time.Minute, i)
			w.accountAt(t, l, 90*time.Minute, i)
			assert.InDelta(t, test.want, l.Report().Total.Cost, 1e-9)
		})
	}
}

func TestPodsBearThePartOfTheInstanceThatTheyRequest(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	w.accountAt(t, l, time.Hour,
		Instance{ID: "half", Offering: spot, GPUs: 8, Created: start, Shares: []Share{{Job: train, Part: .5}}},
		Instance{ID: "shared", Offering: spot, GPUs: 8, Created: start, Reclaiming: true,
			Shares: []Share{{Job: train, Part: 1}, {Job: Job{"other", "pod", "x"}, Part: 1}}})
	r := l.Report()
	require.Len(t, r.Jobs, 2)
	assert.Equal(t, train, r.Jobs[0].Job)
	assert.InDelta(t, 3*.5+3*.5, r.Jobs[0].Cost, 1e-9, "two whole pods on one instance bear half of it each")
	assert.InDelta(t, 4, r.Jobs[0].Reclaiming, 1e-9)
	assert.InDelta(t, 1.5, r.Namespaces[1].Cost, 1e-9)
	assert.InDelta(t, 6, r.Total.Cost, 1e-9)
	assert.InDelta(t, 12, r.Total.Used, 1e-9)
	assert.InDelta(t, 8, r.Total.Reclaiming, 1e-9)
}

func TestHoursWithoutAPriceAreToldApart(t *testing.T) {
	w := newWorld()
	delete(w.prices, spot)
	clk := clocktesting.NewFakeClock(start)
	l := w.ledger(t)
	l.config.Clock = clk
	w.accountAt(t, l, 0)
	w.at, w.instances = start.Add(time.Hour), []Instance{{ID: "i", Offering: spot, Created: start}}
	assert.False(t, l.account(t.Context()), "its price may come")
	clk.Step(pricePatience)
	assert.True(t, l.account(t.Context()))
	assert.Equal(t, 1., l.Report().Total.Unpriced)
	assert.Zero(t, l.Report().Total.Cost)
}

func TestANewLeaderGoesOnWhereTheLastOneSaved(t *testing.T) {
	w := newWorld()
	old, born := Instance{ID: "old", Offering: spot, Created: start.Add(-time.Hour)}, Instance{ID: "new", Offering: spot, Created: start.Add(65 * time.Minute)}
	first := w.ledger(t)
	w.accountAt(t, first, 0, old)
	w.accountAt(t, first, time.Hour, old)
	require.True(t, first.save(t.Context()))
	w.accountAt(t, first, 61*time.Minute, old) // not saved: its process is killed

	second := w.ledger(t)
	w.accountAt(t, second, 70*time.Minute, old, born)
	r := second.Report()
	assert.InDelta(t, 3*(70+5)/60., r.Total.Cost, 1e-9, "since the ledger began, and since the new instance's creation")
	assert.Equal(t, start, r.Since)
	assert.Equal(t, start.Add(70*time.Minute), r.Until)
}

func TestNothingIsAccountedOrSavedUntilTheTotalsAreLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.failLoad(errors.New("no connection"))
		l := New(Config{Inventory: w, Prices: w, Store: w, Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		time.Sleep(5 * saveEvery)
		assert.Zero(t, w.saveCount())
		assert.Zero(t, l.Report().Since)

		synctest.Wait()
		w.failLoad(nil)
		time.Sleep(3 * saveEvery)
		synctest.Wait()
		assert.Positive(t, w.saveCount())
		saves := w.saveCount()
		cancel()
		<-done
		assert.Equal(t, saves+1, w.saveCount(), "once more at the end")
	})
}

func TestALeaderThatEndsSavesTheInstancesThatThereAreThen(t *testing.T) {
	for name, pricesPending := range map[string]bool{"with their prices": false, "whose prices are not known yet": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				l := New(Config{Inventory: w, Prices: w, Store: w, Clock: clock.RealClock{}})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { l.Run(ctx); close(done) }()
				synctest.Wait()
				running, err := RunningOf(w.saved)
				require.NoError(t, err)
				assert.Empty(t, running.Lines)

				w.instances, w.at = []Instance{{ID: "i-1", Pool: "asg-1", Offering: spot, Created: start, GPUs: 1}}, start.Add(accountEvery/2)
				w.pricesPending = pricesPending
				cancel()
				<-done
				running, err = RunningOf(w.saved)
				require.NoError(t, err)
				assert.Equal(t, []RunningLine{{Offering: offeringOf("asg-1", spot), Price: w.prices[spot], Instances: []string{"i-1"}}}, running.Lines)
				assert.Equal(t, w.at, running.At.UTC())
				var accounted time.Time
				if !pricesPending {
					accounted = w.at
				}
				assert.Equal(t, accounted, l.Report().Until, "what is not accounted for is left to the next leader")
			})
		})
	}
}

func TestTotalsThatSomebodyElseHasSavedAreLoadedAnew(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.saveErr = errors.New("no connection")
	assert.True(t, l.save(t.Context()), "it keeps its totals")
	w.saveErr = apierrors.NewConflict(schema.GroupResource{}, "ledger", nil)
	assert.False(t, l.save(t.Context()))
}

func TestTotalsThatCannotBeReadBeginAnew(t *testing.T) {
	w := newWorld()
	for _, saved := range []string{"no archive", compressed(t, `{"version": 99}`), compressed(t, `{"version": 1`)} {
		w.saved, w.anew = []byte(saved), nil
		w.ledger(t)
		assert.ErrorContains(t, w.anew, "read the saved cost ledger")
		assert.Equal(t, saved, string(w.aside))
	}
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	assert.Equal(t, start, l.Report().Since)
}

func compressed(t *testing.T, text string) string {
	var out strings.Builder
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, errors.Join(err, w.Close()))
	return out.String()
}

func TestTheEndOfAJobIsToldOnceUnlessItRunsAgain(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	busy := Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Shares: []Share{{Job: train, Part: 1}}}
	idle := busy
	idle.Shares = nil
	w.accountAt(t, l, 0, busy)
	w.accountAt(t, l, time.Hour, busy)
	w.accountAt(t, l, time.Hour+endedAfter/2, idle)
	assert.Empty(t, w.ended)
	w.accountAt(t, l, time.Hour+endedAfter, idle)
	assert.InDelta(t, 3, w.ended[train].Cost, 1e-9)
	clear(w.ended)
	require.True(t, l.save(t.Context()))
	l = w.ledger(t)
	w.accountAt(t, l, 2*time.Hour, idle)
	assert.Empty(t, w.ended, "a new leader does not tell it again")
	w.accountAt(t, l, 3*time.Hour, busy)
	w.accountAt(t, l, 4*time.Hour, idle)
	assert.InDelta(t, 6, w.ended[train].Cost, 1e-9)
}

func TestAJobThatCannotBeToldIsToldLaterButNotForEver(t *testing.T) {
	w := newWorld()
	w.deaf = true
	l := w.ledger(t)
	busy := Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Shares: []Share{{Job: train, Part: 1}}}
	w.accountAt(t, l, 0, busy)
	w.accountAt(t, l, time.Hour, busy)
	tried := func(after time.Duration) bool {
		clear(w.ended)
		w.accountAt(t, l, time.Hour+after)
		return len(w.ended) > 0
	}
	assert.True(t, tried(endedAfter))
	assert.False(t, tried(endedAfter+accountEvery), "not every time")
	assert.True(t, tried(3*endedAfter))
	assert.True(t, tried(tellFor+endedAfter), "the last time")
	assert.False(t, tried(tellFor+3*endedAfter))
}

func TestANewInstanceCountsFromItsCreationHoweverLateItIsListed(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	late := Instance{ID: "late", Offering: spot, Created: start.Add(5 * time.Minute)}
	w.accountAt(t, l, 0)
	w.accountAt(t, l, 10*time.Minute)
	w.accountAt(t, l, 20*time.Minute, late)
	assert.InDelta(t, 3*15./60, l.Report().Total.Cost, 1e-9)
	w.accountAt(t, l, 22*time.Minute)
	w.accountAt(t, l, 30*time.Minute, late)
	assert.InDelta(t, 3*25./60, l.Report().Total.Cost, 1e-9, "it was missing from one list, and counts no minute twice")
	w.accountAt(t, l, 40*time.Minute, Instance{ID: "older", Offering: spot, Created: start.Add(-time.Hour)}, late)
	assert.InDelta(t, 3*(35+10)/60., l.Report().Total.Cost, 1e-9, "what is older than the process is not new")
}

func TestAnInstanceThatWasStoppedCountsOnFromWhenItIsStarted(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	i := Instance{ID: "i", Offering: spot, Created: start}
	w.accountAt(t, l, 0)
	w.accountAt(t, l, 10*time.Hour, i)
	w.accountAt(t, l, 10*time.Hour+10*time.Second)
	w.accountAt(t, l, 12*time.Hour)
	w.accountAt(t, l, 12*time.Hour+10*time.Second, i)
	assert.InDelta(t, 10, l.Report().Total.InstanceHours, .01)

	require.True(t, l.save(t.Context()))
	next := w.ledger(t)
	w.accountAt(t, next, 13*time.Hour) // stopped again
	w.accountAt(t, next, 14*time.Hour)
	w.accountAt(t, next, 14*time.Hour+10*time.Second, i)
	assert.InDelta(t, 10, next.Report().Total.InstanceHours, .02, "nor does a new leader take it for new")
}

func TestAPodBearsNothingOfTheTimeBeforeItRan(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	// There was no leader for a day, and the pod has run for the last hour of it.
	w.accountAt(t, l, 24*time.Hour, Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Shares: []Share{{Job: train, Part: 1, Since: start.Add(23 * time.Hour)}}})
	r := l.Report()
	assert.InDelta(t, 3, r.Jobs[0].Cost, 1e-9)
	assert.InDelta(t, 72, r.Total.Cost, 1e-9)
	assert.InDelta(t, 1, r.Total.Used, 1e-9)
}

func TestNothingIsCountedUntilPricesAreKnownButNotForLong(t *testing.T) {
	w := newWorld()
	clk := clocktesting.NewFakeClock(start)
	l := w.ledger(t)
	l.config.Clock = clk
	i := Instance{ID: "i", Offering: spot, Created: start.Add(-time.Hour)}
	w.accountAt(t, l, 0, i)
	w.pricesPending = true
	w.at = start.Add(time.Hour)
	assert.False(t, l.account(t.Context()))
	w.pricesPending = false
	assert.True(t, l.account(t.Context()))
	assert.InDelta(t, 3, l.Report().Total.Cost, 1e-9, "nothing is lost")

	w.pricesPending = true
	w.at = start.Add(2 * time.Hour)
	assert.False(t, l.account(t.Context()))
	clk.Step(pricePatience)
	assert.True(t, l.account(t.Context()), "then the closest price has to do")
	w.at = start.Add(3 * time.Hour)
	assert.True(t, l.account(t.Context()), "and nobody waits for this one again")
}

func TestAnotherCurrencyBeginsAnotherLedger(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	i := Instance{ID: "i", Offering: spot, Created: start}
	w.accountAt(t, l, 0, i)
	w.accountAt(t, l, time.Hour, i)
	w.currency = ""
	w.accountAt(t, l, 2*time.Hour, i)
	assert.Equal(t, "CNY", l.Report().Currency, "it is not known for a while after a start")
	w.currency = "USD"
	w.accountAt(t, l, 3*time.Hour, i)
	assert.ErrorContains(t, w.anew, "USD")
	assert.Equal(t, "USD", l.Report().Currency)
	assert.Zero(t, l.Report().Total.Cost)
}

func TestNoNamespaceCostsAnotherItsLines(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	shares := []Share{{Job: train, Part: .1}}
	for n := range mostJobs + 10 {
		shares = append(shares, Share{Job: Job{"greedy", "pod", fmt.Sprint(n)}, Part: .0001})
	}
	w.accountAt(t, l, time.Hour, Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Shares: shares})
	w.accountAt(t, l, 2*time.Hour, Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Shares: shares[1:]})
	r := l.Report()
	assert.Len(t, r.Jobs, mostJobs)
	assert.Equal(t, train, r.Jobs[0].Job, "it ended first")
}

func TestTheLinesAreBoundedAndNothingOfTheSumsIsLost(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	var many []Instance
	random := rand.New(rand.NewPCG(1, 2))
	for n := range mostJobs + 10 {
		name := fmt.Sprintf("%s-%04d", strings.Repeat("x", 95), n)
		o := spot
		o.Zone = fmt.Sprint(n % 1200)
		w.prices[o] = 1 + random.Float64()
		many = append(many, Instance{
			ID: name, Pool: "asg-1", Offering: o, GPUs: 1, Created: start.Add(time.Duration(random.IntN(3600)) * time.Second),
			Shares: []Share{{Job: Job{fmt.Sprintf("team-%d", n%1100), "pod", name}, Part: random.Float64()}},
		})
	}
	w.accountAt(t, l, time.Hour, many...)
	r := l.Report()
	assert.Len(t, r.Jobs, mostJobs)
	assert.LessOrEqual(t, len(r.Offerings), mostOfferings)
	assert.LessOrEqual(t, len(r.Namespaces), mostNamespaces)
	want := 0.
	for _, i := range many {
		want += w.prices[i.Offering] * (time.Hour - i.Created.Sub(start)).Hours()
	}
	assert.InDelta(t, want, r.Total.Cost, 1e-6)
	borne, used := 0., 0.
	for _, line := range r.Namespaces {
		borne += line.Cost
		used += line.Used
	}
	assert.InDelta(t, r.Total.Used, used, 1e-6)
	assert.Less(t, borne, r.Total.Cost)
	l.totals.running, l.totals.runningAt = l.running()
	state, err := encode(l.totals)
	require.NoError(t, err)
	assert.Less(t, len(state), 900<<10, "a ConfigMap has 1 MiB for all that is in it")

	w.accountAt(t, l, 2*time.Hour+foldAfter)
	assert.Empty(t, l.Report().Jobs)
	assert.NotEmpty(t, l.Report().Namespaces, "the namespaces keep what they cost")
}

func TestTheMetricsGrowByWhatIsAccounted(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	value := func(use string) float64 { return testutil.ToFloat64(gpuHours.WithLabelValues("asg-metrics", use)) }
	w.accountAt(t, l, 0)
	i := Instance{ID: "i", Pool: "asg-metrics", Offering: spot, GPUs: 8, Created: start, Shares: []Share{{Job: train, Part: .25}}}
	w.accountAt(t, l, time.Hour, i)
	i.Reclaiming = true
	w.accountAt(t, l, 2*time.Hour, i)
	assert.InDelta(t, 4, value("used"), 1e-9)
	assert.InDelta(t, 12, value("idle"), 1e-9)
	assert.InDelta(t, 8, value("reclaiming"), 1e-9)
	assert.InDelta(t, 6, testutil.ToFloat64(costs.WithLabelValues("asg-metrics", "spot")), 1e-9)
}

func TestTheReportAsCSVHasALineForEachOfferingNamespaceAndJob(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	w.accountAt(t, l, time.Hour, Instance{ID: "i", Pool: "asg-1", Offering: spot, GPUs: 2, Created: start, Shares: []Share{{Job: train, Part: .5}}})
	var text strings.Builder
	require.NoError(t, l.Report().WriteCSV(&text))
	assert.Equal(t, strings.Join(header, ",")+`
offering,asg-1,ecs.gn6i,a,spot,,,,CNY,1.000000,0.000000,3.000000,10.000000,2.000000,1.000000,0.000000
namespace,,,,,team,,,CNY,0.500000,0.000000,1.500000,5.000000,1.000000,1.000000,0.000000
job,,,,,team,pytorch,train,CNY,0.500000,0.000000,1.500000,5.000000,1.000000,1.000000,0.000000
`, text.String())
	assert.Equal(t, "'=1+1", AsText("=1+1"))
	assert.Equal(t, "", AsText(""))
}

func TestTheSavedStateHasTheInstancesThatArePaidForWithTheirPrices(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0, Instance{ID: "i-2", Pool: "asg-1", Offering: spot, GPUs: 1}, Instance{ID: "i-1", Pool: "asg-1", Offering: spot, GPUs: 1})
	w.accountAt(t, l, time.Minute, Instance{ID: "i-2", Pool: "asg-1", Offering: spot, GPUs: 1}, Instance{ID: "i-3", Pool: "asg-2", Offering: spot, GPUs: 1})
	require.True(t, l.save(t.Context()))

	running, err := RunningOf(w.saved)
	require.NoError(t, err)
	assert.Equal(t, w.currency, running.Currency)
	assert.Equal(t, l.Report().Until, running.At.UTC())
	assert.Equal(t, []RunningLine{
		{Offering: offeringOf("asg-1", spot), Price: w.prices[spot], Instances: []string{"i-2"}},
		{Offering: offeringOf("asg-2", spot), Price: w.prices[spot], Instances: []string{"i-3"}},
	}, running.Lines)

	require.True(t, w.ledger(t).save(t.Context()), "a new leader that is told to end before it has counted")
	again, err := RunningOf(w.saved)
	require.NoError(t, err)
	assert.Equal(t, running.Lines, again.Lines)

	none, err := RunningOf(nil)
	require.NoError(t, err)
	assert.Empty(t, none)
	former, err := RunningOf([]byte(compressed(t, `{"version": 1, "until": "2026-11-01T08:00:00Z", "running": [{"pool": "asg-1", "instances": ["i-1"]}]}`)))
	require.NoError(t, err)
	assert.Equal(t, start, former.At.UTC(), "what a former version has saved")
	assert.Equal(t, []string{"i-1"}, former.Lines[0].Instances)
	_, err = RunningOf([]byte("x"))
	assert.Error(t, err)
}
