package reclaim

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestTheNodeOfAReleasedInstanceIsRemoved(t *testing.T) {
	story(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.cloud.release("a")
		w.pass(DefaultPollInterval / alertFactor)
		require.NotNil(t, w.node("a"), "one answer is not believed")
		w.pass(DefaultPollInterval / alertFactor)
		assert.Nil(t, w.node("a"))
		assert.Contains(t, w.seen(), "SpotReclaimReleased a")
		w.poll()
		assert.Empty(t, w.controller.Doomed())
	})
}

func TestANodeIsGivenBackAsItWas(t *testing.T) {
	for name, tc := range map[string]struct {
		before        func(*corev1.Node)
		unschedulable bool
	}{
		"as any other":                    {func(*corev1.Node) {}, false},
		"with its own taint":              {withTaint, false},
		"cordoned, where somebody had it": {cordoned, true},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a", tc.before)
				before := w.node("a")
				w.cloud.reclaim("a")
				w.start()
				require.True(t, isMarked(w.node("a")))
				w.seen()

				w.cloud.withdraw("a")
				w.poll()
				w.poll()
				after := w.node("a")
				requireUnmarked(t, after)
				assert.Equal(t, tc.unschedulable, after.Spec.Unschedulable)
				assert.ElementsMatch(t, before.Spec.Taints, after.Spec.Taints)
				assert.Equal(t, []string{"SpotReclaimCancelled a"}, w.seen())
				w.poll()
				assert.Empty(t, w.controller.Doomed())

				w.addPod("p", "a")
				w.pass(time.Minute)
				assert.Equal(t, []string{"p"}, w.pods(), "it is a node like any other again")

				w.cloud.reclaim("a")
				w.poll()
				assert.True(t, isMarked(w.node("a")), "and may be reclaimed again")
			})
		})
	}
}

func TestANewLeaderGivesBackWhatWasWithdrawnMeanwhile(t *testing.T) {
	story(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.stop()
		w.cloud.withdraw("a")
		w.start()
		w.poll()
		requireUnmarked(t, w.node("a"))
		assert.False(t, w.node("a").Spec.Unschedulable)
	})
}

func TestAFailingCloudChangesNothing(t *testing.T) {
	broken := errors.New("ServiceUnavailable")
	for name, fail := range map[string][2]error{
		"the listing fails":    {broken, nil},
		"the asking fails":     {nil, broken},
		"everything is broken": {broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				deadline := time.Now().Add(DefaultNoticePeriod - time.Second)
				w.cloud.withdraw("a")
				w.cloud.fail(fail[0], fail[1])
				w.pass(20 * DefaultPollInterval)
				requireMarked(t, w.node("a"), deadline)

				w.cloud.fail(nil, nil)
				w.poll()
				w.poll()
				requireUnmarked(t, w.node("a"))
			})
		})
	}
}

func TestAnInstanceOnItsWayOutIsNotGivenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		status string
		after  time.Duration // the notice
		marked bool
	}{
		"it stops":                                {"Stopping", 4 * time.Minute, true},
		"it runs, unlocked, at its deadline":      {"Running", 5 * time.Minute, true},
		"it runs, unlocked, well past it":         {"Running", 7 * time.Minute, false},
		"it runs, unlocked, long before the time": {"Running", time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.pass(tc.after - time.Second)
				w.cloud.set("i-a", tc.status)
				w.pass(5 * DefaultPollInterval)
				assert.Equal(t, tc.marked, isMarked(w.node("a")))
			})
		})
	}
}

func TestEveryEndIsCounted(t *testing.T) {
	for outcome, tell := range map[string]func(w *world){
		outcomeDrained:    func(w *world) { w.cloud.release("a") },
		outcomeFalseAlarm: func(w *world) { w.cloud.withdraw("a") },
		outcomeLate:       func(w *world) { w.cloud.release("a") },
	} {
		t.Run(outcome, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a")
				if outcome == outcomeLate {
					w.addPod("guarded", "a")
					w.protect("guarded")
				}
				before := testutil.ToFloat64(reclaims.WithLabelValues(string(SourcePoll), outcome))
				w.cloud.reclaim("a")
				w.start()
				tell(w)
				w.poll()
				w.poll()
				assert.Equal(t, before+1, testutil.ToFloat64(reclaims.WithLabelValues(string(SourcePoll), outcome)))
			})
		})
	}
}
