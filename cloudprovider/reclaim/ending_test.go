package reclaim

import (
	"errors"
	"testing"
	"time"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheNodeOfAReleasedInstanceIsRemoved(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.cloud.release("a")
		w.pass(poll.DefaultInterval / busyFactor)
		require.NotNil(t, w.node("a"), "one answer is not believed")
		w.pass(poll.DefaultInterval / busyFactor)
		assert.Nil(t, w.node("a"))
		assert.Contains(t, w.seen(), "SpotReclaimReleased a")
		w.poll()
		assert.Empty(t, w.notices.Reclaiming())
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
			inBubble(t, func(w *world) {
				w.addNode("a", tc.before)
				before := w.node("a")
				w.cloud.reclaim("a")
				w.start()
				require.True(t, cluster.IsMarked(w.node("a")))
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
				assert.Empty(t, w.notices.Reclaiming())

				w.addPod("p", "a")
				w.pass(time.Minute)
				assert.Equal(t, []string{"p"}, w.pods(), "it is a node like any other again")

				w.cloud.reclaim("a")
				w.poll()
				assert.True(t, cluster.IsMarked(w.node("a")), "and may be reclaimed again")
			})
		})
	}
}

func TestANewLeaderGivesBackWhatWasWithdrawnMeanwhile(t *testing.T) {
	inBubble(t, func(w *world) {
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
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				deadline := time.Now().Add(notice.DefaultPeriod - time.Second)
				w.cloud.withdraw("a")
				w.cloud.fail(fail[0], fail[1])
				w.pass(20 * poll.DefaultInterval)
				requireMarked(t, w.node("a"), deadline)

				w.cloud.fail(nil, nil)
				w.poll()
				w.poll()
				requireUnmarked(t, w.node("a"))
			})
		})
	}
}

func TestANoticeAfterAWithdrawnOneCountsWhileECSIsAway(t *testing.T) {
	broken := errors.New("ServiceUnavailable")
	for name, fail := range map[string][2]error{"the listing fails": {broken, broken}, "the asking fails": {nil, broken}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.cloud.withdraw("a")
				for cluster.IsMarked(w.node("a")) {
					w.pass(poll.DefaultInterval / busyFactor / 10)
				}
				w.cloud.fail(fail[0], fail[1]) // at once
				w.seen()
				w.updateNode("a", agentSays(time.Now().Add(4*time.Minute)))
				w.pass(time.Minute)
				assert.True(t, cluster.IsMarked(w.node("a")))
				assert.NotContains(t, w.seen(), "SpotReclaimCancelled a")
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
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start()
				w.pass(tc.after - time.Second)
				w.cloud.set("i-a", tc.status)
				w.pass(5 * poll.DefaultInterval)
				assert.Equal(t, tc.marked, cluster.IsMarked(w.node("a")))
			})
		})
	}
}

func TestEveryEndIsCounted(t *testing.T) {
	for outcome, end := range map[string]func(w *world){
		mark.OutcomeDrained:   func(w *world) { w.cloud.release("a") },
		mark.OutcomeCancelled: func(w *world) { w.cloud.withdraw("a") },
		mark.OutcomeLate:      func(w *world) { w.cloud.release("a") },
	} {
		t.Run(outcome, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				if outcome == mark.OutcomeLate {
					w.addPod("guarded", "a")
					w.protect("guarded")
				}
				before := value(t, "gpu_spot_reclaims_total", sourcePoll, outcome)
				w.cloud.reclaim("a")
				w.start()
				end(w)
				w.poll()
				w.poll()
				assert.Equal(t, before+1, value(t, "gpu_spot_reclaims_total", sourcePoll, outcome))
			})
		})
	}
}

func TestANodeThatANamesakeReplacedCountsAsGone(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.poll()
		require.True(t, cluster.IsMarked(w.node("a")))
		before := value(t, "gpu_spot_reclaims_total", sourcePoll, mark.OutcomeDrained)
		w.cloud.set("i-b", "Running")
		w.updateNode("a", func(node *corev1.Node) { // as an informer shows it whose watch was interrupted
			*node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-b"}, Spec: corev1.NodeSpec{ProviderID: "cn-beijing.i-b"}}
		})
		w.pass(time.Minute)
		assert.Equal(t, before+1, value(t, "gpu_spot_reclaims_total", sourcePoll, mark.OutcomeDrained))
		requireUnmarked(t, w.node("a"))
	})
}
