package reclaim

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

// The instance runs, unlocked, in all of these: only the poll gives its word up for that.
func TestANoticeStandsUntilItsSourceGivesItUp(t *testing.T) {
	for name, tc := range map[string]struct {
		speak, giveUp func(w *world)
		// stands is how long it should be marked after it was heard, before anybody gives up.
		stands time.Duration
	}{
		"the condition becomes False": {
			func(w *world) { w.updateNode("a", expired("True", time.Now())) },
			func(w *world) { w.updateNode("a", expired("False", time.Now())) },
			4 * time.Minute,
		},
		"the node-agent takes its word back": {
			func(w *world) { w.updateNode("a", agentSays(time.Now().Add(5*time.Minute))) },
			func(w *world) { w.updateNode("a", agentIsSilent) },
			4 * time.Minute,
		},
		"the last of two": {
			func(w *world) {
				w.updateNode("a", agentSays(time.Now().Add(5*time.Minute)), expired("True", time.Now()))
			},
			func(w *world) {
				w.updateNode("a", expired("False", time.Now()))
				w.pass(10 * time.Second)
				assert.True(w, cluster.IsMarked(w.node("a")))
				w.updateNode("a", agentIsSilent)
			},
			time.Minute,
		},
		"an event that the API never heard of": {
			func(w *world) { require.Equal(w, http.StatusOK, w.sender().push(interrupted("a", time.Now()))) },
			func(*world) {},
			pushPatience - 2*time.Second,
		},
		"an event that the API heard of too": {
			func(w *world) {
				require.Equal(w, http.StatusOK, w.sender().push(interrupted("a", time.Now())))
				w.cloud.reclaim("a")
				w.poll()
			},
			func(w *world) { w.cloud.withdraw("a") },
			20 * time.Second,
		},
		"the poll": {
			func(w *world) { w.cloud.reclaim("a"); w.poll() },
			func(w *world) { w.cloud.withdraw("a") },
			2 * time.Minute,
		},
		"the poll, and the node-agent was first": {
			func(w *world) {
				w.updateNode("a", agentSays(time.Now().Add(5*time.Minute)))
				w.cloud.reclaim("a")
				w.poll()
				w.cloud.withdraw("a")
			},
			func(w *world) { w.updateNode("a", agentIsSilent) },
			2 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a", withTaint)
				w.start()
				tc.speak(w)
				w.pass(0)
				source := w.node("a").Annotations[api.AnnotationReclaimSource]
				require.True(t, cluster.IsMarked(w.node("a")))
				w.pass(tc.stands)
				require.True(t, cluster.IsMarked(w.node("a")), "while it stands")
				w.seen()
				before := value(t, "gpu_spot_reclaims_total", source, mark.OutcomeCancelled)

				tc.giveUp(w)
				w.pass(2 * poll.DefaultInterval)
				after := w.node("a")
				requireUnmarked(t, after)
				assert.False(t, after.Spec.Unschedulable)
				assert.Equal(t, []corev1.Taint{spotTaint}, after.Spec.Taints)
				for _, word := range notice.SourceAnnotations {
					assert.NotContains(t, after.Annotations, word)
				}
				assert.Contains(t, w.seen(), "SpotReclaimCancelled a")
				assert.Equal(t, before+1, value(t, "gpu_spot_reclaims_total", source, mark.OutcomeCancelled))
				w.pass(time.Minute)
				requireUnmarked(t, w.node("a"))
				assert.Empty(t, w.notices.Reclaiming())
			})
		})
	}
}

func TestAnInstanceThatOutlivesItsDeadlineIsAFalseAlarmWhoeverSaysOtherwise(t *testing.T) {
	period := 5 * time.Minute
	// The poll needs no row: ECS itself says that the instance is not being reclaimed.
	covered := map[notice.Source]bool{notice.SourcePoll: true}
	for name, tc := range map[string]struct {
		source notice.Source
		// insist is what the source does every five seconds.
		insist func(w *world, noticed time.Time)
		again  func(w *world)
	}{
		"a condition that nobody takes off": {
			notice.SourceCondition,
			func(w *world, noticed time.Time) { w.updateNode("a", expired("True", noticed)) },
			func(w *world) { w.updateNode("a", expired("True", time.Now())) },
		},
		"a node-agent that writes the same again and again": {
			notice.SourceAgent,
			func(w *world, noticed time.Time) { w.updateNode("a", agentSays(noticed.Add(period))) },
			func(w *world) { w.updateNode("a", agentSays(time.Now().Add(period))) },
		},
		"an event that is sent again and again": {
			notice.SourcePush,
			func(w *world, noticed time.Time) { w.sender().push(interrupted("a", noticed)) },
			func(w *world) { w.pass(holdFor); w.sender().push(interrupted("a", time.Now())) },
		},
	} {
		covered[tc.source] = true
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.start()
				noticed := time.Now()
				insist := func(d time.Duration) {
					for range d / (5 * time.Second) {
						tc.insist(w, noticed)
						w.pass(5 * time.Second)
					}
				}
				insist(30 * time.Second)
				require.True(t, cluster.IsMarked(w.node("a")))
				insist(period + notice.ReleaseGrace)
				require.False(t, cluster.IsMarked(w.node("a")), "the source still announces: see the comment of notice.NodeSource")
				requireUnmarked(t, w.node("a"))
				w.seen()
				insist(10 * time.Minute)
				require.False(t, cluster.IsMarked(w.node("a")), "the source announces the same again: see the comment of notice.NodeSource")
				requireUnmarked(t, w.node("a"))
				assert.Empty(t, w.seen(), "it stays given back")

				tc.again(w)
				w.pass(time.Second)
				assert.True(t, cluster.IsMarked(w.node("a")), "but the next notice counts")
			})
		})
	}
	requireEverySource(t, covered)
}

func TestAnEventThatIsDeliveredAgainAfterTheWithdrawalIsNotANotice(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.start()
		event := interrupted("a", time.Now())
		require.Equal(t, http.StatusOK, w.sender().push(event))
		w.pass(pushPatience + 2*poll.DefaultInterval)
		requireUnmarked(t, w.node("a"))
		assert.Equal(t, http.StatusOK, w.sender().push(event), "another replica")
		w.pass(time.Second)
		requireUnmarked(t, w.node("a"))
	})
}

func TestANewLeaderKnowsWhoseWordItHas(t *testing.T) {
	for name, tc := range map[string]struct {
		speak  func(w *world)
		marked bool // a minute later, while the instance runs unlocked
	}{
		"the node-agent still says so": {func(w *world) { w.updateNode("a", agentSays(time.Now().Add(5*time.Minute))) }, true},
		"the API no longer does":       {func(w *world) { w.cloud.reclaim("a"); w.poll(); w.cloud.withdraw("a") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.start()
				tc.speak(w)
				w.pass(0)
				require.True(t, cluster.IsMarked(w.node("a")))
				w.stop()
				w.start()
				w.pass(time.Minute)
				assert.Equal(t, tc.marked, cluster.IsMarked(w.node("a")))
			})
		})
	}
}
