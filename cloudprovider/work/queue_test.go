package work

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
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

func TestWhatIsNotYetIsTriedAgainLaterEachTimeWithoutAWord(t *testing.T) {
	for err, said := range map[error]bool{ErrNotYet: false, fmt.Errorf("definition: %w", ErrNotYet): false, errors.New("refused"): true} {
		synctest.Test(t, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			queue := NewQueue[string]("test", clock.RealClock{}, time.Second)
			began, looks := time.Now(), []time.Duration{}
			go queue.Work(klog.NewContext(t.Context(), logger), func(context.Context, string) error {
				looks = append(looks, time.Since(began))
				return err
			})
			queue.Add("item")
			time.Sleep(8 * FirstRetry)
			queue.ShutDown()
			synctest.Wait()
			assert.Equal(t, []time.Duration{0, FirstRetry, 3 * FirstRetry, 7 * FirstRetry}, looks)
			assert.Equal(t, said, logger.GetSink().(ktesting.Underlier).GetBuffer().String() != "")
		})
	}
}
