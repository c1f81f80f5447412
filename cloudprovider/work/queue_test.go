package work

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/clock"
)

func TestItemsAreLookedAtAgainAfterAFailureAndWhenTheyAskForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewQueue[string]("test", clock.RealClock{}, time.Second)
		began, looks := time.Now(), []time.Duration{}
		go queue.WorkAgain(t.Context(), func(context.Context, string) (time.Duration, error) {
			looks = append(looks, time.Since(began))
			switch len(looks) {
			case 1:
				return time.Hour, errors.New("busy")
			case 2:
				return time.Minute, nil
			}
			return 0, nil
		})
		queue.Add("item")
		time.Sleep(3 * time.Hour)
		queue.ShutDown()
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, FirstRetry, FirstRetry + time.Minute}, looks)
	})
}
