package reclaim

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

var errAway = errors.New("ECS is away")

// push sends the event of each Node, of this moment.
func (w *world) push(nodes ...string) {
	w.Helper()
	s := w.sender()
	for _, node := range nodes {
		require.Equal(w, http.StatusOK, s.push(interrupted(node, time.Now())))
	}
}

// atOnce waits for no replacement.
func atOnce(c *settings) { c.ReplaceWait = time.Millisecond }

func TestAFalsePushedNoticeWarnsAndEvictsNobodyAndIsTakenBack(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		w.gang("train", "worker", 2)
		w.addNode("b")
		w.addPod("alone", "train-worker-0")
		f.start(atOnce)
		w.push("train-worker-0")
		w.pass(pushPatience / 2)
		require.True(t, cluster.IsMarked(w.node("train-worker-0")))
		assert.EqualValues(t, 1, w.notified.Load(), "the replacement is bought")
		assert.NotEmpty(t, w.request("train-worker-0"))
		assert.NotEmpty(t, w.request("train-worker-1"), "all of the job are asked to save their work")
		assert.NotEmpty(t, w.request("alone"))

		w.pass(pushPatience)
		requireUnmarked(t, w.node("train-worker-0"))
		assert.False(t, w.node("train-worker-0").Spec.Unschedulable)
		assert.Contains(t, w.seen(), "SpotReclaimCancelled train-worker-0")
		for _, pod := range []string{"train-worker-0", "train-worker-1", "alone"} {
			assert.NotContains(t, w.pod(pod).Annotations, api.AnnotationReclaimDeadline)
			assert.Empty(t, w.request(pod))
		}
		w.pass(10 * time.Minute)
		assert.Empty(t, w.gone())
		assert.Empty(t, f.called(), "neither shrunk nor suspended")
	})
}

func TestAPushedNoticeEvictsAsSoonAsItIsConfirmed(t *testing.T) {
	for by, confirm := range map[string]func(w *world){
		"ECS":                          func(w *world) { w.cloud.reclaim("train-worker-0") },
		"ECS, where its list is empty": func(w *world) { w.cloud.setBlind(true); w.cloud.reclaim("train-worker-0") },
		"the node-agent":               func(w *world) { w.updateNode("train-worker-0", agentSays(time.Now().Add(4*time.Minute))) },
		"the condition":                func(w *world) { w.updateNode("train-worker-0", expired("True", time.Now())) },
	} {
		t.Run(by, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 1, 2)
				w.gang("train", "worker", 2)
				w.addPod("alone", "train-worker-0")
				f.start(atOnce)
				w.push("train-worker-0")
				w.pass(20 * time.Second)
				require.True(t, cluster.IsMarked(w.node("train-worker-0")))
				require.Empty(t, w.gone())
				require.Empty(t, f.called())

				confirm(w)
				w.pass(poll.DefaultInterval)
				assert.Equal(t, []string{"shrink train train-worker-0"}, f.called())
				gone := w.gone()
				slices.Sort(gone)
				assert.Equal(t, []string{"alone", "train-worker-0"}, gone)
				assert.Equal(t, "true", w.node("train-worker-0").Annotations[api.AnnotationReclaimConfirmed])
				assert.Equal(t, "push", w.node("train-worker-0").Annotations[api.AnnotationReclaimSource])
			})
		})
	}
}

func TestWhereECSCannotBeAskedAPushedNoticeEvictsShortlyBeforeTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct{ notice, before time.Duration }{
		"a notice of five minutes": {5 * time.Minute, 90 * time.Second},
		"a short one":              {time.Minute, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 2)
				w.gang("train", "worker", 2)
				w.addPod("alone", "train-worker-0")
				w.cloud.fail(errAway, errAway)
				f.start(atOnce)
				w.pass(time.Hour)
				status := w.sender().push(interrupted("train-worker-0", time.Now().Add(tc.notice-notice.DefaultPeriod)))
				require.Equal(t, http.StatusOK, status)
				w.pass(tc.notice - tc.before - 2*time.Second)
				require.True(t, cluster.IsMarked(w.node("train-worker-0")))
				require.Empty(t, w.gone())
				require.Empty(t, f.called())

				w.pass(4 * time.Second)
				assert.Equal(t, []string{"alone"}, w.gone())
				assert.Equal(t, []string{"suspend train"}, f.called())
				w.pass(tc.before)
				assert.Contains(t, w.gone(), "train-worker-0")
			})
		})
	}
}

// The sender chooses the time of an event, and with it the deadline.
func TestAPushedNoticeThatECSContradictsEvictsNobodyHoweverNearItsDeadline(t *testing.T) {
	for _, left := range []time.Duration{3 * time.Second, 61 * time.Second, 91 * time.Second, 2 * time.Minute} {
		t.Run(left.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addPod("p", "a")
				w.start(atOnce)
				w.pass(time.Hour)
				require.Equal(t, http.StatusOK, w.sender().push(interrupted("a", time.Now().Add(left-notice.DefaultPeriod))))
				w.pass(time.Second)
				require.True(t, cluster.IsMarked(w.node("a")))
				w.pass(left + notice.ReleaseGrace + 10*time.Second)
				requireUnmarked(t, w.node("a"))
				assert.Empty(t, w.gone())
			})
		})
	}
}

func TestANewLeaderDoubtsWhatTheLastOneDoubted(t *testing.T) {
	for name, confirmed := range map[string]bool{"it was confirmed": true, "nothing had confirmed it": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.start(func(c *settings) { c.Replaced, c.ReplaceWait = func(string) bool { return false }, time.Minute })
				w.addPod("p", "a")
				w.push("a")
				if confirmed {
					w.cloud.reclaim("a")
				}
				w.poll()
				require.True(t, cluster.IsMarked(w.node("a")))
				require.Empty(t, w.gone())
				w.stop()

				w.cloud.fail(errAway, errAway)
				w.start(atOnce)
				w.pass(30 * time.Second)
				assert.Equal(t, confirmed, len(w.gone()) > 0)
				w.pass(4 * time.Minute)
				assert.NotEmpty(t, w.gone(), "its time has come")
			})
		})
	}
}

func TestALeaderThatComesAtTheEndAsksECSBeforeItEvicts(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.start()
		w.push("a")
		w.pass(time.Second)
		require.True(t, cluster.IsMarked(w.node("a")))
		w.stop()
		w.pass(notice.DefaultPeriod - 20*time.Second)
		w.start()
		w.pass(notice.DefaultPeriod)
		assert.Empty(t, w.gone())
		requireUnmarked(t, w.node("a"))
	})
}

func TestOnlyWhatIsLostForCertainIsTakenOutOfAJob(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 4)
		w.gang("train", "worker", 4)
		f.start(atOnce)
		w.push("train-worker-0")
		w.pass(5 * time.Second)
		w.cloud.reclaim("train-worker-1")
		w.pass(5 * time.Second)
		require.Equal(t, []string{"shrink train train-worker-1"}, f.called())
		require.Equal(t, []string{"train-worker-1"}, w.gone())
		first := w.request("train-worker-0")

		w.cloud.reclaim("train-worker-0")
		w.pass(5 * time.Second)
		assert.Equal(t, []string{"shrink train train-worker-1", "shrink train train-worker-0"}, f.called(), "asked anew")
		assert.Equal(t, []string{"train-worker-1", "train-worker-0"}, w.gone())
		assert.NotEqual(t, first, w.request("train-worker-2"))
	})
}

func TestAJobWhoseLossIsDeniedAsItIsDecidedOnIsDecidedOnOnceItIsConfirmed(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		w.gang("train", "worker", 2)
		w.cloud.fail(errAway, errAway)
		f.start(atOnce)
		w.push("train-worker-0")
		w.pass(notice.DefaultPeriod - unconfirmedMargin - 5*time.Second)
		f.mu.Lock()
		f.fails["get"] = errors.New("away")
		f.mu.Unlock()
		w.pass(7 * time.Second)
		require.Empty(t, f.called())
		w.notices.Verdicts.Contradict("i-train-worker-0")
		f.mu.Lock()
		delete(f.fails, "get")
		f.mu.Unlock()
		w.pass(10 * time.Second)
		require.Empty(t, f.called())
		require.Empty(t, w.gone())

		w.cloud.fail(nil, nil)
		w.cloud.reclaim("train-worker-0")
		w.pass(10 * time.Second)
		assert.Equal(t, []string{"shrink train train-worker-0"}, f.called())
		assert.Equal(t, []string{"train-worker-0"}, w.gone())
	})
}

// crowd makes n Nodes with a pod each, and returns their names.
func (w *world) crowd(n int) (names []string) {
	w.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("n%02d", i))
		w.addNode(names[i])
		w.addPod("on-"+names[i], names[i])
	}
	return names
}

func (w *world) markedOf(names []string) (marked []string) {
	for _, name := range names {
		if cluster.IsMarked(w.node(name)) {
			marked = append(marked, name)
		}
	}
	return marked
}

func TestAFloodOfPushedNoticesIsHeldUntilTheyAreConfirmed(t *testing.T) {
	inBubble(t, func(w *world) {
		nodes := w.crowd(20)
		w.start(atOnce)
		w.seen()
		w.push(nodes...)
		w.pass(3 * time.Second)
		assert.Len(t, w.markedOf(nodes), 2, "a tenth")
		held := 0
		for _, event := range w.seen() {
			if strings.HasPrefix(event, "SpotReclaimHeld") {
				held++
			}
		}
		assert.Equal(t, 18, held)
		assert.EqualValues(t, 18, value(t, "gpu_spot_reclaim_notices_held"))
		assert.EqualValues(t, 2, value(t, "gpu_spot_reclaim_notices_unconfirmed"))
		assert.Len(t, w.notices.Reclaiming(), 2)
		assert.Empty(t, w.notices.Lost(), "whoever pushes notices steers no purchases")

		w.cloud.reclaim("n10")
		w.pass(5 * time.Second)
		assert.Equal(t, []string{"i-n10"}, w.notices.Lost().UnsortedList())
		assert.True(t, cluster.IsMarked(w.node("n10")))
		assert.Equal(t, []string{"on-n10"}, w.gone(), "what is confirmed is held no more")
		assert.EqualValues(t, 17, value(t, "gpu_spot_reclaim_notices_held"))

		w.seen()
		for range 12 {
			for _, node := range nodes {
				w.updateNode(node, heartbeat)
			}
			w.pass(10 * time.Second)
		}
		for _, event := range w.seen() {
			assert.NotContains(t, event, events.ReasonNotice, "no place that becomes free is taken by the next")
		}
		assert.Equal(t, []string{"n10"}, w.markedOf(nodes), "the others are taken back")
		w.cloud.withdraw("n10")
		w.pass(notice.DefaultPeriod)
		assert.Equal(t, []string{"on-n10"}, w.gone())
		assert.Zero(t, value(t, "gpu_spot_reclaim_notices_held"))
		for _, node := range nodes {
			assert.NotContains(t, w.node(node).Annotations, api.AnnotationNoticePush, node)
		}
	})
}

func TestHowManyPushedNoticesAreActedUponCanBeChosen(t *testing.T) {
	for most, want := range map[string]int{"0": 0, "3": 3, "100%": 10, "1%": 1, "25%": 3} {
		t.Run(most, func(t *testing.T) {
			inBubble(t, func(w *world) {
				nodes := w.crowd(10)
				w.addNode("other", labelled(api.LabelPurchaseOption, "on-demand"))
				limit := intstr.Parse(most)
				w.start(func(c *settings) { c.MaxUnconfirmed = &limit })
				w.push(nodes...)
				w.pass(3 * time.Second)
				assert.Len(t, w.markedOf(nodes), want)
			})
		})
	}
	for _, wrong := range []string{"-1", "many"} {
		limit := intstr.Parse(wrong)
		inBubble(t, func(w *world) {
			view := newCluster(t, informers.NewSharedInformerFactory(w.client, time.Hour), "", soloJobs{})
			_, err := notice.NewStore(notice.Config{Cluster: view, MaxUnconfirmed: &limit})
			assert.ErrorContains(t, err, "MaxUnconfirmed")
		})
	}
}

func TestAPushedNoticeThatIsConfirmedCountsNoMore(t *testing.T) {
	inBubble(t, func(w *world) {
		nodes := w.crowd(10)
		w.start()
		for _, node := range nodes {
			w.push(node)
			w.cloud.reclaim(node)
			w.poll()
		}
		assert.Equal(t, nodes, w.markedOf(nodes))
		assert.NotContains(t, w.seen(), "SpotReclaimHeld n09")
	})
}

func TestWhatIsPushedAndConfirmedAtTheSameTimeIsNotHeld(t *testing.T) {
	inBubble(t, func(w *world) {
		nodes := w.crowd(3)
		for _, node := range nodes {
			w.updateNode(node, agentSays(time.Now().Add(4*time.Minute)))
		}
		w.push(nodes...)
		w.start()
		assert.Equal(t, nodes, w.markedOf(nodes))
		for _, node := range nodes {
			assert.NotContains(t, w.seen(), "SpotReclaimHeld "+node)
		}
	})
}
