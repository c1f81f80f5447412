package reclaim

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestADoomedNodeIsEmptiedOfWhatCanMove(t *testing.T) {
	story(t, func(w *world) {
		w.addNode("a")
		w.addNode("b")
		w.addPod("worker", "a")
		w.addPod("elsewhere", "b")
		w.addPod("driver", "a", ownedByDaemonSet)
		w.addPod("proxy", "a", mirror)
		w.addPod("done", "a", succeeded)
		w.cloud.reclaim("a")
		w.start()

		assert.Equal(t, []string{"done", "driver", "elsewhere", "proxy"}, w.pods())
		assert.Equal(t, []string{"SpotReclaimDrained a", "SpotReclaimEvicted worker", "SpotReclaimNotice a"}, w.seen())
	})
}

func TestAPodThatComesBackIsEvictedAgain(t *testing.T) {
	story(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.seen()
		w.addPod("tolerates-everything", "a")
		w.pass(time.Second)
		assert.Empty(t, w.pods())
		assert.Equal(t, []string{"SpotReclaimEvicted tolerates-everything"}, w.seen())
	})
}

func TestABudgetIsRespectedUntilTheLastMinute(t *testing.T) {
	story(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.addPod("free", "a")
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start() // one second after the notice
		require.Equal(t, []string{"guarded"}, w.pods())

		w.pass(4*time.Minute - 2*time.Second)
		require.Equal(t, []string{"guarded"}, w.pods(), "a second before the last minute")
		asked := len(w.requests())
		assert.Less(t, asked, 50, "a budget that refuses is not hammered")

		w.seen()
		w.pass(2 * time.Second)
		assert.Empty(t, w.pods())
		assert.Equal(t, []string{"SpotReclaimDeleted guarded", "SpotReclaimDrained a"}, w.seen())
	})
}

func TestABudgetThatYieldsIsAskedAgain(t *testing.T) {
	story(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start()
		w.pass(time.Minute)
		require.Equal(t, []string{"guarded"}, w.pods())

		w.mu.Lock()
		w.budget.Delete("guarded")
		w.mu.Unlock()
		w.pass(retryMost)
		assert.Empty(t, w.pods())
	})
}

func TestAnAnswerThatMayChangeIsWaitedFor(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, answer := range map[string]error{
		"a budget refuses":              apierrors.NewTooManyRequests("disruption budget", 10),
		"the pod is under two budgets":  apierrors.NewInternalError(errors.New("more than one PodDisruptionBudget")),
		"many are evicted at once":      apierrors.NewTimeoutError("couldn't update PodDisruptionBudget", 10),
		"the pod has changed meanwhile": apierrors.NewConflict(pods, "p", nil),
		"the answer makes no sense":     apierrors.NewForbidden(pods, "p", nil),
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				var answers atomic.Int32
				w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					failing := action.GetSubresource() == "eviction" && answers.Add(1) <= 3
					return failing, nil, answer
				})
				w.addNode("a")
				w.addPod("p", "a")
				w.cloud.reclaim("a")
				w.start()
				assert.Empty(t, w.pods())
				assert.EqualValues(t, 4, answers.Load())
			})
		})
	}
}

func TestDeletionStartsInTimeForTheNotice(t *testing.T) {
	noticed := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct{ notice, from time.Duration }{
		"five minutes: the last one":        {5 * time.Minute, 4 * time.Minute},
		"an hour: the last minute":          {time.Hour, 59 * time.Minute},
		"a minute: its last fifth":          {time.Minute, 48 * time.Second},
		"deadline over when heard: at once": {-time.Minute, -time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			notice := Notice{FirstSeen: noticed, Deadline: noticed.Add(tc.notice)}
			assert.Equal(t, noticed.Add(tc.from), notice.DeleteFrom())
		})
	}
}

func TestGraceIsCappedAtWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		own, noticed time.Duration // noticed: how long before the pod is evicted
		want         int64
	}{
		"short grace is kept":            {30 * time.Second, time.Minute, 30},
		"long grace is cut":              {time.Hour, 2 * time.Minute, 180},
		"never zero, even past its time": {time.Hour, 10 * time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start(func(c *Config) { c.PollInterval = time.Hour })
				w.pass(tc.noticed - time.Second)
				w.addPod("p", "a", grace(tc.own))
				w.pass(0)
				assert.Equal(t, []int64{tc.want}, w.graces())
			})
		})
	}
}

// graces are those of the evictions and deletions of pods so far, in seconds.
func (w *world) graces() []int64 {
	var graces []int64
	for _, action := range w.client.Actions() {
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			if eviction, ok := action.Object.(*policyv1.Eviction); ok {
				graces = append(graces, *eviction.DeleteOptions.GracePeriodSeconds)
			}
		case clienttesting.DeleteActionImpl:
			if action.Resource.Resource == "pods" {
				graces = append(graces, *action.DeleteOptions.GracePeriodSeconds)
			}
		}
	}
	return graces
}
