package market

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
)

var (
	here  = pricing.Offering{InstanceType: "a10", Zone: "a", Spot: true}
	there = pricing.Offering{InstanceType: "a10", Zone: "b", Spot: true}
	other = pricing.Offering{InstanceType: "t4", Zone: "b", Spot: true}
)

// live has instances of the offering live through some hours, of which some are reclaimed at the end.
func live(m *Memory, o pricing.Offering, from time.Duration, hours, count, lost int) {
	var all []Living
	for n := range count {
		all = append(all, Living{ID: o.Zone + from.String() + string(rune('a'+n)), Offering: o})
	}
	for hour := range hours + 1 {
		m.Observe(all, at(from+time.Duration(hour)*time.Hour))
	}
	for n := range lost {
		all[n].Lost = true
	}
	m.Observe(all, at(from+time.Duration(hours)*time.Hour+time.Minute))
	m.Observe(all, at(from+time.Duration(hours)*time.Hour+2*time.Minute)) // a loss counts once
}

func lifeOf(m *Memory, o pricing.Offering) float64 { return m.Of(o).Life.Hours() }

func TestWhatIsLostOftenIsExpectedToBeLostAgain(t *testing.T) {
	m := NewMemory()
	assert.InDelta(t, priorHours, lifeOf(m, here), .01, "nothing was seen")
	live(m, here, 0, 10, 5, 5)
	assert.Less(t, lifeOf(m, here), 14.)
	assert.Greater(t, lifeOf(m, here), 10.)
	assert.Less(t, lifeOf(m, there), lifeOf(m, other), "the same type in another zone is suspected more than another type")
	assert.Less(t, lifeOf(m, there), priorHours)
	assert.InDelta(t, priorHours, lifeOf(m, other), .01)

	live(m, other, 20*time.Hour, 100, 5, 0)
	assert.Greater(t, lifeOf(m, other), 200., "nothing was ever lost of it")
	assert.Greater(t, lifeOf(m, there), 20., "its zone is a good one")
}

func TestWhatWasRefusedIsExpectedToBeRefusedAgain(t *testing.T) {
	m := NewMemory()
	assert.InDelta(t, .05, m.Of(here).Refusal, .001)
	m.Asked(here, 10)
	m.Refused(here, 10)
	assert.Greater(t, m.Of(here).Refusal, .3)
	assert.Greater(t, m.Of(there).Refusal, .1)
	m.Asked(there, 100)
	assert.Less(t, m.Of(there).Refusal, .05)
	for range 1000 {
		m.Refused(here, 10)
	}
	assert.LessOrEqual(t, m.Of(here).Refusal, mostRefusal)
}

func TestAnInstanceCountsFromItsCreation(t *testing.T) {
	m := NewMemory()
	m.Observe(nil, at(0))
	m.Observe([]Living{{ID: "a", Offering: here, Created: at(50 * time.Minute)}}, at(time.Hour))
	assert.InDelta(t, priorHours+1./6, lifeOf(m, here), .01)
}

func TestOnDemandIsNeverLost(t *testing.T) {
	m := NewMemory()
	onDemand := here
	onDemand.Spot = false
	m.Refused(onDemand, 10)
	live(m, onDemand, 0, 1, 1, 1)
	assert.Zero(t, m.Of(onDemand))
	assert.InDelta(t, priorHours, lifeOf(m, here), .01)
}

func TestTheMemoryFades(t *testing.T) {
	m := NewMemory()
	live(m, here, 0, 10, 5, 5)
	before := lifeOf(m, here)
	m.Observe(nil, at(100*24*time.Hour))
	assert.Less(t, before, lifeOf(m, here))
	m.Observe(nil, at(200*24*time.Hour))
	assert.InDelta(t, priorHours, lifeOf(m, here), .01)
	assert.Empty(t, m.seen)
	assert.Empty(t, m.byType)
}

func TestTheMemorySurvivesARestartAndCountsNoLossTwice(t *testing.T) {
	m := NewMemory()
	live(m, here, 0, 10, 5, 5)
	m.Asked(here, 4)
	m.Refused(here, 3)
	text, err := m.Encode()
	require.NoError(t, err)
	next := NewMemory()
	require.NoError(t, next.Decode(text))
	assert.Equal(t, m.Of(here), next.Of(here))
	assert.Equal(t, m.Of(there), next.Of(there))
	lost := Living{ID: "a0sa", Offering: here}
	require.Contains(t, next.lost, lost.ID)
	next.Observe([]Living{lost}, at(10*time.Hour+10*time.Minute)) // the new leader does not know yet
	lost.Lost = true
	next.Observe([]Living{lost}, at(10*time.Hour+20*time.Minute))
	assert.InDelta(t, lifeOf(m, here), lifeOf(next, here), .1)

	for _, broken := range []string{"", "no archive"} {
		assert.Error(t, next.Decode([]byte(broken)))
	}
}

// shelf is a Store.
type shelf struct {
	mu    sync.Mutex
	state []byte
	err   error
	saves int
	aside []byte
}

func (s *shelf) SetAside() { s.aside = s.state }

func (s *shelf) Load(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.err
}

// fail sets what Load returns.
func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *shelf) saved() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saves
}

func (s *shelf) Save(_ context.Context, state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.saves = state, s.saves+1
	return nil
}

func TestWhatWasSavedIsNotOverwrittenBeforeItIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shelf{err: errors.New("no connection")}
		keeper := NewKeeper(KeeperConfig{Memory: NewMemory(), Store: store, Clock: clock.RealClock{}, Instances: func() ([]Living, time.Time) { return nil, time.Now() }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { keeper.Run(ctx); close(done) }()
		time.Sleep(3 * saveEvery)
		synctest.Wait()
		assert.Zero(t, store.saved())
		store.fail(nil)
		time.Sleep(2 * saveEvery)
		synctest.Wait()
		assert.Positive(t, store.saved())
		cancel()
		<-done
	})
}

func TestASavedMemoryThatCannotBeReadIsForgotten(t *testing.T) {
	var corrupt error
	store := &shelf{state: []byte("no archive")}
	keeper := NewKeeper(KeeperConfig{Memory: NewMemory(), Store: store, Clock: clock.RealClock{}, Corrupt: func(err error) { corrupt = err }})
	assert.True(t, keeper.tryLoad(t.Context()))
	assert.ErrorContains(t, corrupt, "remembered of the market")
	assert.Equal(t, "no archive", string(store.aside))
}

func BenchmarkReliabilityOfAThousandOfferings(b *testing.B) {
	m := NewMemory()
	var all []pricing.Offering
	for n := range 1000 {
		o := pricing.Offering{InstanceType: string(rune('a' + n%40)), Zone: string(rune('a' + n/40)), Spot: true}
		all = append(all, o)
		m.Asked(o, 3)
	}
	for b.Loop() {
		for _, o := range all {
			m.Of(o)
		}
	}
}
