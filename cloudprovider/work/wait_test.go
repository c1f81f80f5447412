package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/clock"
)

func TestEveryCallsAtOnceAndThenEachIntervalUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun, calls := time.Now(), []time.Duration(nil)
		Every(ctx, clock.RealClock{}, time.Minute, func() {
			if calls = append(calls, time.Since(begun)); len(calls) == 3 {
				cancel()
			}
		})
		assert.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, calls)
	})
}

func TestSleepEndsWithItsDurationOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		assert.NoError(t, Sleep(t.Context(), clock.RealClock{}, time.Minute))
		assert.Equal(t, time.Minute, time.Since(begun))
		assert.NoError(t, Sleep(t.Context(), clock.RealClock{}, -time.Minute))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, Sleep(ctx, clock.RealClock{}, time.Minute), context.DeadlineExceeded)
		assert.ErrorIs(t, Sleep(ctx, clock.RealClock{}, 0), context.DeadlineExceeded, "which has ended already")
		assert.Equal(t, time.Minute+time.Second, time.Since(begun))
	})
}
