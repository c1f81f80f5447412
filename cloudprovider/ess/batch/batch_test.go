package batch

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

const window = 250 * time.Millisecond

// recorder executes batches by turning requests to upper case, and records them.
type recorder struct {
	mu      sync.Mutex
	batches map[string][][]string
}

func (r *recorder) execute(_ context.Context, key string, requests []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches[key] = append(r.batches[key], requests)
	var results []string
	for _, request := range requests {
		results = append(results, strings.ToUpper(request))
	}
	return results
}

func newBatcher(ctx context.Context) (*Batcher[string, string, string], *recorder) {
	r := &recorder{batches: map[string][][]string{}}
	return New(ctx, clock.RealClock{}, window, r.execute), r
}

func TestRequestsOfOneWindowAreServedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batcher, served := newBatcher(t.Context())
		first, err := batcher.Add("one", "a", "b")
		require.NoError(t, err)
		time.Sleep(window / 2)
		second, err := batcher.Add("one", "c")
		require.NoError(t, err)
		other, err := batcher.Add("other", "x")
		require.NoError(t, err)

		assert.Equal(t, []string{"A", "B"}, first.Wait())
		assert.Equal(t, []string{"C"}, second.Wait())
		assert.Equal(t, []string{"X"}, other.Wait())
		assert.Equal(t, map[string][][]string{"one": {{"a", "b", "c"}}, "other": {{"x"}}}, served.batches)
	})
}

func TestRequestAfterTheWindowIsServedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batcher, served := newBatcher(t.Context())
		_, err := batcher.Add("one", "a")
		require.NoError(t, err)
		time.Sleep(window + time.Millisecond)
		late, err := batcher.Add("one", "b")
		require.NoError(t, err)
		assert.Equal(t, []string{"B"}, late.Wait())
		assert.Equal(t, [][]string{{"a"}, {"b"}}, served.batches["one"])
	})
}

func TestStopServesWhatWasAddedAndRefusesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		batcher, served := newBatcher(ctx)
		pending, err := batcher.Add("one", "a")
		require.NoError(t, err)
		began := time.Now()
		cancel()
		batcher.Stop()
		assert.Zero(t, time.Since(began), "the window ends with the context")
		assert.Equal(t, []string{"A"}, pending.Wait())
		_, err = batcher.Add("one", "b")
		require.ErrorIs(t, err, ErrStopped)
		assert.Len(t, served.batches["one"], 1)
	})
}
