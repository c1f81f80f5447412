package reclaim

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestANoticeThatThePollIsSilentAboutIsCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		tell func(w *world)
		// counted so soon after the other source spoke, and not before; 0: never.
		after time.Duration
	}{
		"the instance is locked, and not listed": {func(w *world) { w.cloud.setBlind(true); w.cloud.reclaim("a") }, DefaultPollInterval},
		"it is said to be recycling in lower case": {func(w *world) {
			w.cloud.setBlind(true)
			w.cloud.set("i-a", "Running", "recycling")
		}, DefaultPollInterval},
		"it is stopped already":               {func(w *world) { w.cloud.setBlind(true); w.cloud.set("i-a", "Stopped", "Recycling") }, DefaultPollInterval},
		"ECS knows nothing of it":             {func(w *world) { w.cloud.set("i-a", "Running") }, unseenPatience},
		"the poll heard of it, too":           {func(w *world) { w.cloud.reclaim("a") }, 0},
		"it is released before ECS was asked": {func(w *world) { w.cloud.release("a") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				count := func() float64 { return testutil.ToFloat64(unseenByPoll.WithLabelValues(string(SourceAgent))) }
				w.addNode("a")
				w.cloud.set("i-a", "Running")
				w.start()
				before := count()
				tc.tell(w)
				w.updateNode("a", agentSays(time.Now().Add(5*time.Minute)))
				if tc.after > DefaultPollInterval {
					w.pass(tc.after - 2*DefaultPollInterval)
					assert.Equal(t, before, count(), "the API may be behind")
				}
				w.pass(3 * DefaultPollInterval)
				if tc.after > 0 {
					before++
				}
				assert.Equal(t, before, count())
				w.pass(2 * time.Minute)
				assert.Equal(t, before, count(), "once for a notice")
			})
		})
	}
}

func TestAnInstanceUnderRecyclingThatIsStoppedIsNotTakenForGone(t *testing.T) {
	for name, lock := range map[string][]string{
		"listed":        {alicloud.LockRecycling},
		"in lower case": {"recycling"},
		"not listed":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.cloud.set("i-a", "Stopped", lock...)
				w.pass(4 * time.Minute)
				require.NotNil(t, w.node("a"))
				assert.True(t, isMarked(w.node("a")))
				assert.True(t, w.controller.Doomed().Has("i-a"), "it still holds room in its scaling group")

				w.cloud.release("a")
				w.poll()
				w.poll()
				assert.Nil(t, w.node("a"))
			})
		})
	}
}

func TestAnInstanceThatIsStoppedInsteadOfReleased(t *testing.T) {
	for name, lock := range map[string][]string{"still locked": {alicloud.LockRecycling}, "unlocked": nil} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.cloud.set("i-a", "Stopped", lock...)
				w.cloud.stopOnInterruption("a")
				w.pass(DefaultNoticePeriod)
				assert.NotContains(t, w.seen(), "SpotReclaimStopped a", "it may just be on its way out")
				w.pass(releaseGrace + DefaultPollInterval)
				assert.Contains(t, w.seen(), "SpotReclaimStopped a")
				w.pass(10 * time.Minute)
				assert.NotContains(t, w.seen(), "SpotReclaimStopped a", "it is told once")
				require.NotNil(t, w.node("a"), "its instance is there")
				assert.True(t, isMarked(w.node("a")), "and serves nothing")
				assert.Equal(t, DefaultPollInterval, w.controller.pause(1), "it is no reason to ask more often")

				w.cloud.set("i-a", "Running")
				w.pass(5 * DefaultPollInterval)
				requireUnmarked(t, w.node("a"))
			})
		})
	}
}
