package reclaim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

func TestANoticeThatThePollIsSilentAboutIsCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		happen func(w *world)
		// counted so soon after the other source spoke, and not before; 0: never.
		after time.Duration
	}{
		"the instance is locked, and not listed": {func(w *world) { w.cloud.setBlind(true); w.cloud.reclaim("a") }, poll.DefaultInterval},
		"it is said to be recycling in lower case": {func(w *world) {
			w.cloud.setBlind(true)
			w.cloud.set("i-a", "Running", "recycling")
		}, poll.DefaultInterval},
		"it is stopped already":               {func(w *world) { w.cloud.setBlind(true); w.cloud.set("i-a", "Stopped", "Recycling") }, poll.DefaultInterval},
		"ECS knows nothing of it":             {func(w *world) { w.cloud.set("i-a", "Running") }, unlistedPatience},
		"the poll heard of it, too":           {func(w *world) { w.cloud.reclaim("a") }, 0},
		"it is released before ECS was asked": {func(w *world) { w.cloud.release("a") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				count := func() float64 {
					return value(t, "gpu_spot_reclaim_notices_unseen_by_poll_total", string(notice.SourceAgent))
				}
				w.addNode("a")
				w.cloud.set("i-a", "Running")
				w.start()
				before := count()
				tc.happen(w)
				w.updateNode("a", agentSays(time.Now().Add(5*time.Minute)))
				if tc.after > poll.DefaultInterval {
					w.pass(tc.after - 2*poll.DefaultInterval)
					assert.Equal(t, before, count(), "the API may be behind")
				}
				w.pass(3 * poll.DefaultInterval)
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
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.cloud.set("i-a", "Stopped", lock...)
				w.pass(4 * time.Minute)
				require.NotNil(t, w.node("a"))
				assert.True(t, cluster.IsMarked(w.node("a")))
				assert.True(t, w.notices.Reclaiming().Has("i-a"), "it still holds room in its scaling group")

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
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.cloud.set("i-a", "Stopped", lock...)
				w.cloud.stopOnInterruption("a")
				w.pass(notice.DefaultPeriod)
				assert.NotContains(t, w.seen(), "SpotReclaimStopped a", "it may just be on its way out")
				w.pass(notice.ReleaseGrace + poll.DefaultInterval)
				assert.Contains(t, w.seen(), "SpotReclaimStopped a")
				w.pass(10 * time.Minute)
				assert.NotContains(t, w.seen(), "SpotReclaimStopped a", "it is told once")
				require.NotNil(t, w.node("a"), "its instance is there")
				assert.True(t, cluster.IsMarked(w.node("a")), "and serves nothing")
				polls := w.cloud.polls()
				w.pass(10 * poll.DefaultInterval)
				assert.InDelta(t, 10, w.cloud.polls()-polls, 1, "it is no reason to ask more often")

				w.cloud.set("i-a", "Running")
				w.pass(5 * poll.DefaultInterval)
				requireUnmarked(t, w.node("a"))
			})
		})
	}
}

func TestANewLeaderDoesNotReportNoticesThatItOnlyFoundOnNodes(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.updateNode("a", agentSays(time.Now().Add(5*time.Minute)))
		w.start()
		w.pass(10 * time.Second)
		w.cloud.set("i-a", "Stopped")
		w.cloud.stopOnInterruption("a")
		w.pass(10 * time.Minute)
		before := value(t, "gpu_spot_reclaim_notices_unseen_by_poll_total", string(notice.SourceAgent))
		w.stop()
		w.start()
		w.pass(5 * poll.DefaultInterval)
		require.True(t, cluster.IsMarked(w.node("a")))
		assert.Equal(t, before, value(t, "gpu_spot_reclaim_notices_unseen_by_poll_total", string(notice.SourceAgent)))
	})
}
