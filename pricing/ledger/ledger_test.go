package ledger

import (
	"compress/gzip"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
)

var (
	spot  = pricing.Offering{InstanceType: "ecs.gn6i", Zone: "a", Spot: true}
	start = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	train = Job{Namespace: "team", System: "pytorch", Name: "train"}
)

// world is everything that a ledger asks.
type world struct {
	instances []Instance
	at        time.Time
	prices    map[pricing.Offering]float64

	saved            []byte
	loadErr, saveErr error
	saves            int
	ended            map[Job]Amounts
	corrupt          error
}

func (w *world) Instances() ([]Instance, time.Time)                  { return w.instances, w.at }
func (w *world) Price(o pricing.Offering) (float64, bool)            { price, ok := w.prices[o]; return price, ok }
func (w *world) Currency() string                                    { return "CNY" }
func (w *world) Load(context.Context) ([]byte, error)                { return w.saved, w.loadErr }
func (w *world) end(_ context.Context, job Job, a Amounts, _ string) { w.ended[job] = a }

func (w *world) Save(_ context.Context, state []byte) error {
	if w.saveErr == nil {
		w.saved = state
		w.saves++
	}
	return w.saveErr
}

func newWorld() *world {
	onDemand := spot
	onDemand.Spot = false
	return &world{ended: map[Job]Amounts{}, at: start, prices: map[pricing.Offering]float64{spot: 3, onDemand: 10}}
}

// ledger returns one that has loaded what was saved.
func (w *world) ledger(t *testing.T) *Ledger {
	l := New(Config{
		Inventory: w, Prices: w, Store: w, Clock: clock.RealClock{}, Ended: w.end, Corrupt: func(err error) { w.corrupt = err },
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

func TestPodsBearThePartOfTheInstanceThatTheyRequest(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	w.accountAt(t, l, time.Hour,
		Instance{ID: "half", Offering: spot, GPUs: 8, Created: start, Shares: []Share{{train, .5}}},
		Instance{ID: "shared", Offering: spot, GPUs: 8, Created: start, Reclaiming: true,
			Shares: []Share{{train, 1}, {Job{"other", "pod", "x"}, 1}}})
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
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	w.accountAt(t, l, time.Hour, Instance{ID: "i", Offering: spot, Created: start})
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
		w.loadErr = errors.New("no connection")
		l := New(Config{Inventory: w, Prices: w, Store: w, Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		time.Sleep(5 * saveEvery)
		assert.Zero(t, w.saves)
		assert.Zero(t, l.Report().Since)

		synctest.Wait()
		w.loadErr = nil
		time.Sleep(3 * saveEvery)
		synctest.Wait()
		assert.Positive(t, w.saves)
		saves := w.saves
		cancel()
		<-done
		assert.Equal(t, saves+1, w.saves, "once more at the end")
	})
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
		w.saved, w.corrupt = []byte(saved), nil
		w.ledger(t)
		assert.ErrorContains(t, w.corrupt, "read the saved cost ledger")
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
	busy := Instance{ID: "i", Offering: spot, GPUs: 1, Created: start, Shares: []Share{{train, 1}}}
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

func TestTheLinesAreBoundedAndNothingOfTheSumsIsLost(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	var many []Instance
	for n := range mostJobs + 10 {
		name := strings.Repeat("x", n%7) + time.Duration(n).String()
		many = append(many, Instance{ID: name, Pool: name, Offering: spot, GPUs: 1, Created: start, Shares: []Share{{Job{"team", "pod", name}, 1}}})
	}
	w.accountAt(t, l, time.Hour, many...)
	r := l.Report()
	assert.Len(t, r.Jobs, mostJobs)
	assert.LessOrEqual(t, len(r.Offerings), mostOfferings)
	assert.InDelta(t, 3*float64(len(many)), r.Total.Cost, 1e-6)
	assert.InDelta(t, r.Total.Cost, r.Namespaces[0].Cost, 1e-6)
	state, err := encode(l.totals)
	require.NoError(t, err)
	assert.Less(t, len(state), 1<<20)

	w.accountAt(t, l, 2*time.Hour+foldAfter)
	assert.Empty(t, l.Report().Jobs)
	assert.Greater(t, l.Report().Namespaces[0].Cost, r.Namespaces[0].Cost, "the namespace keeps what they cost")
}

func TestTheReportAsCSVHasALineForEachOfferingNamespaceAndJob(t *testing.T) {
	w := newWorld()
	l := w.ledger(t)
	w.accountAt(t, l, 0)
	w.accountAt(t, l, time.Hour, Instance{ID: "i", Pool: "asg-1", Offering: spot, GPUs: 2, Created: start, Shares: []Share{{train, .5}}})
	var text strings.Builder
	require.NoError(t, l.Report().WriteCSV(&text))
	assert.Equal(t, strings.Join(header, ",")+`
offering,asg-1,ecs.gn6i,a,spot,,,,CNY,1.000000,0.000000,3.000000,10.000000,2.000000,1.000000,0.000000
namespace,,,,,team,,,CNY,0.500000,0.000000,1.500000,5.000000,1.000000,1.000000,0.000000
job,,,,,team,pytorch,train,CNY,0.500000,0.000000,1.500000,5.000000,1.000000,1.000000,0.000000
`, text.String())
}
