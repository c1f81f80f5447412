package reclaim

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

// annotated has the source say so on the Node.
func annotated(key, value string) func(*corev1.Node) {
	return func(node *corev1.Node) { metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value) }
}

// agentSays has the node-agent announce a deadline on the Node.
func agentSays(deadline time.Time) func(*corev1.Node) {
	return annotated(api.AnnotationNoticeAgent, deadline.UTC().Format(time.RFC3339))
}

func agentIsSilent(node *corev1.Node) { delete(node.Annotations, api.AnnotationNoticeAgent) }

// expired has the condition on the Node as the node-problem-detector writes it.
func expired(status corev1.ConditionStatus, since time.Time) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: api.ConditionInstanceExpired, Status: status, Reason: "InstanceToBeTerminated", LastTransitionTime: metav1.NewTime(since)},
			{Type: "KernelDeadlock", Status: corev1.ConditionFalse},
		}
	}
}

func heartbeat(node *corev1.Node) { node.Status.NodeInfo.KernelVersion += "." }

// requireEverySource fails if a table of tests has no row for one of the sources. Faults, moves and drills have tests of their own.
func requireEverySource[Row any](t *testing.T, rows map[notice.Source]Row) {
	t.Helper()
	for _, source := range notice.Sources {
		if source == notice.SourceFault || source == notice.SourceMove || source == notice.SourceDrill {
			continue
		}
		_, ok := rows[source]
		require.True(t, ok, "add a row for the source %s to this test", source)
	}
}

func TestEverySourceMarksTheNode(t *testing.T) {
	rows := map[notice.Source]struct {
		speak  func(w *world)
		notice time.Duration // until the deadline
		stated bool
	}{
		notice.SourcePoll:      {func(w *world) { w.cloud.reclaim("a"); w.poll() }, 5*time.Minute - poll.DefaultInterval/2, false},
		notice.SourceAgent:     {func(w *world) { w.updateNode("a", agentSays(time.Now().Add(4*time.Minute))) }, 4 * time.Minute, true},
		notice.SourceCondition: {func(w *world) { w.updateNode("a", expired("True", time.Now().Add(-time.Minute))) }, 4 * time.Minute, false},
		notice.SourcePush: {func(w *world) {
			require.Equal(w, http.StatusOK, w.sender().push(interrupted("a", time.Now().Add(-time.Minute))))
		}, 4 * time.Minute, true},
	}
	requireEverySource(t, rows)
	for source, tc := range rows {
		t.Run(string(source), func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addNode("b")
				w.addPod("p", "a")
				w.start()
				tc.speak(w)
				w.pass(0)
				marked := w.node("a")
				requireMarked(t, marked, time.Now().Add(tc.notice))
				assert.Equal(t, string(source), marked.Annotations[api.AnnotationReclaimSource])
				assert.Equal(t, tc.stated, marked.Annotations[api.AnnotationReclaimStated] == "true")
				assert.EqualValues(t, 1, w.notified.Load(), "one wake-up")
				assert.Equal(t, []string{"i-a"}, w.notices.Reclaiming().UnsortedList())
				requireUnmarked(t, w.node("b"))
				w.pass(2 * time.Minute)
				assert.Equal(t, source == notice.SourcePush, len(w.pods()) > 0, "nobody is evicted for what was only pushed")
			})
		})
	}
}

func TestWhatAnnouncesNothingMarksNoNode(t *testing.T) {
	for name, say := range map[string]func(*corev1.Node){
		"an empty annotation":      annotated(api.AnnotationNoticeAgent, ""),
		"a deadline long over":     agentSays(time.Date(1999, 12, 31, 23, 58, 0, 0, time.UTC)),
		"the condition is False":   expired("False", time.Now()),
		"the condition is Unknown": expired("Unknown", time.Now()),
		"another condition is True": func(node *corev1.Node) {
			node.Status.Conditions = []corev1.NodeCondition{{Type: "KernelDeadlock", Status: "True"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a", say)
				w.start()
				w.updateNode("a", heartbeat)
				w.pass(time.Minute)
				requireUnmarked(t, w.node("a"))
				assert.Empty(t, w.notices.Reclaiming())
			})
		})
	}
}

func TestTheDeadlineThatIsKnownBestCounts(t *testing.T) {
	// The first announcement is there when the controller starts, ten seconds after midnight; the second comes afterwards.
	at := func(d time.Duration) time.Time { return time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC).Add(d) }
	poll := func(w *world) { w.cloud.reclaim("a") }
	agent := func(deadline time.Time) func(*world) {
		return func(w *world) { w.updateNode("a", agentSays(deadline)) }
	}
	said := func(text string) func(*world) {
		return func(w *world) { w.updateNode("a", annotated(api.AnnotationNoticeAgent, text)) }
	}
	push := func(sent time.Time) func(*world) {
		return func(w *world) { require.Equal(w, http.StatusOK, w.sender().push(interrupted("a", sent))) }
	}
	condition := func(since time.Time) func(*world) {
		return func(w *world) { w.updateNode("a", expired("True", since)) }
	}
	silence := func(*world) {}
	for name, tc := range map[string]struct {
		first, second func(*world)
		source        notice.Source
		deadline      time.Time
		corrected     bool
	}{
		"an estimate is corrected to earlier":      {poll, agent(at(4 * time.Minute)), notice.SourcePoll, at(4 * time.Minute), true},
		"an estimate is corrected to later":        {poll, agent(at(6 * time.Minute)), notice.SourcePoll, at(6 * time.Minute), true},
		"what is stated is not estimated after":    {agent(at(6 * time.Minute)), condition(at(0)), notice.SourceAgent, at(6 * time.Minute), false},
		"of two that state it the earlier":         {push(at(-10 * time.Second)), agent(at(4 * time.Minute)), notice.SourcePush, at(4 * time.Minute), true},
		"and not the later":                        {agent(at(4 * time.Minute)), push(at(-10 * time.Second)), notice.SourceAgent, at(4 * time.Minute), false},
		"of two estimates the earlier":             {poll, condition(at(-time.Minute)), notice.SourcePoll, at(4 * time.Minute), true},
		"a condition that has outlived its notice": {condition(at(-time.Hour)), silence, notice.SourceCondition, at(5 * time.Minute), false},
		"a deadline that cannot be read":           {said("soon"), silence, notice.SourceAgent, at(5 * time.Minute), false},
		"a deadline in a year":                     {said("2001-01-01T00:00:00Z"), silence, notice.SourceAgent, at(5 * time.Minute), false},
		"a deadline that moves up":                 {agent(at(4 * time.Minute)), agent(at(3 * time.Minute)), notice.SourceAgent, at(3 * time.Minute), true},
		"a deadline that moves back":               {agent(at(3 * time.Minute)), agent(at(4 * time.Minute)), notice.SourceAgent, at(3 * time.Minute), false},
		"a deadline that is over":                  {agent(at(-30 * time.Second)), silence, notice.SourceAgent, at(-30 * time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.pass(time.Until(at(0)))
				tc.first(w)
				w.start(func(c *settings) { c.PollInterval = time.Hour })
				first := w.node("a")
				assert.True(t, cluster.IsMarked(first))
				w.client.ClearActions()
				w.seen()

				tc.second(w)
				w.pass(0)
				requireMarked(t, w.node("a"), tc.deadline)
				assert.Equal(t, string(tc.source), w.node("a").Annotations[api.AnnotationReclaimSource])
				assert.Equal(t, first.Annotations[api.AnnotationReclaimNoticed], w.node("a").Annotations[api.AnnotationReclaimNoticed])
				assert.Equal(t, tc.corrected, w.marks() == 1, "%d patches; all that is new in one", w.marks())
				assert.NotContains(t, w.seen(), "SpotReclaimNotice a", "that was told")
				assert.EqualValues(t, 1, w.notified.Load())
			})
		})
	}
}

// marks is how many patches of Nodes since the last ClearActions wrote a deadline.
func (w *world) marks() (marks int) {
	for _, action := range w.client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), api.AnnotationReclaimDeadline) {
			marks++
		}
	}
	return marks
}

func TestHeartbeatsOfAReclaimingNodeAreNoNews(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", agentSays(time.Now().Add(5*time.Minute)), expired("True", time.Now()))
		w.start()
		require.True(t, cluster.IsMarked(w.node("a")))
		w.client.ClearActions()
		for range 20 {
			w.updateNode("a", heartbeat)
			w.pass(10 * time.Second)
		}
		assert.Zero(t, w.marks())
		assert.EqualValues(t, 1, w.notified.Load())
	})
}

func TestEverySourceHasItsOwnLatency(t *testing.T) {
	inBubble(t, func(w *world) {
		const toMark, later = "gpu_spot_reclaim_notice_to_mark_seconds", "gpu_spot_reclaim_confirmation_delay_seconds"
		conditionToMark, conditionLater := observe(t, toMark, string(notice.SourceCondition)), observe(t, later, string(notice.SourceCondition))
		agentToMark, agentLater := observe(t, toMark, string(notice.SourceAgent)), observe(t, later, string(notice.SourceAgent))
		pollToMark, pollLater := observe(t, toMark, sourcePoll), observe(t, later, sourcePoll)
		w.addNode("a")
		w.start()
		w.breakPatches(true)
		w.updateNode("a", expired("True", time.Now()))
		w.pass(3 * time.Second)
		w.updateNode("a", agentSays(time.Now().Add(4*time.Minute)))
		w.pass(4 * time.Second)
		w.breakPatches(false)
		w.pass(slowestNodeRetry)
		require.True(t, cluster.IsMarked(w.node("a")))
		w.cloud.reclaim("a")
		w.poll()

		assert.InDelta(t, 8, conditionToMark.one(), 1.1, "from its announcement to the mark")
		assert.InDelta(t, 3, conditionToMark.one()-agentToMark.one(), 0.01)
		count, _ := pollToMark.since()
		assert.Zero(t, count, "it came after the mark")

		count, _ = conditionLater.since()
		assert.Zero(t, count, "it was the first")
		assert.InDelta(t, 3, agentLater.one(), 0.01)
		assert.InDelta(t, 10, pollLater.one(), 2)
	})
}

// breakPatches has the API server refuse every patch of a Node, or no longer.
func (w *world) breakPatches(broken bool) {
	if w.patchesBroken == nil {
		w.patchesBroken = new(atomic.Bool)
		w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return w.patchesBroken.Load(), nil, apierrors.NewInternalError(errors.New("etcd is away"))
		})
	}
	w.patchesBroken.Store(broken)
}

func TestANodeOfAnotherRegionIsNotOurs(t *testing.T) {
	far := func(node *corev1.Node) { node.Spec.ProviderID = "cn-shanghai.i-far" }
	inBubble(t, func(w *world) {
		w.addNode("near", agentSays(time.Now().Add(4*time.Minute)))
		w.addNode("far", far, agentSays(time.Now().Add(4*time.Minute)), expired("True", time.Now()))
		// Marked by somebody who is in charge there; here the instance cannot be found.
		w.addNode("theirs", far, func(node *corev1.Node) {
			node.Spec.ProviderID = "cn-shanghai.i-theirs"
			node.Spec.Taints = []corev1.Taint{{Key: api.TaintReclaim, Value: "946685000", Effect: corev1.TaintEffectNoSchedule}}
		})
		w.cloud.release("theirs")
		w.cloud.release("far")
		w.addPod("p", "theirs")
		w.start(func(c *settings) { c.Region = "cn-beijing" })
		w.pass(time.Minute)
		assert.True(t, cluster.IsMarked(w.node("near")))
		assert.Equal(t, []string{"i-near"}, w.notices.Reclaiming().UnsortedList())
		requireUnmarked(t, w.node("far"))
		require.NotNil(t, w.node("theirs"))
		assert.False(t, w.node("theirs").Spec.Unschedulable)
		assert.Equal(t, []string{"p"}, w.pods())
	})
}

func TestANodeThatJoinsAgainIsStillReclaiming(t *testing.T) {
	for name, tc := range map[string]struct{ node, uid string }{
		"under its name":   {"a", "uid-anew"},
		"under another":    {"b", "uid-b"},
		"beside the first": {"c", "uid-c"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a", annotated(api.AnnotationNoticePush, time.Now().Add(4*time.Minute).UTC().Format(time.RFC3339)))
				deadline := time.Now().Add(4 * time.Minute)
				w.start()
				requireMarked(t, w.node("a"), deadline)
				if name != "beside the first" {
					require.NoError(t, w.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
					w.pass(10 * time.Second)
				}
				w.addNode(tc.node, func(node *corev1.Node) { node.UID, node.Spec.ProviderID = types.UID(tc.uid), "cn-beijing.i-a" })
				w.pass(time.Second)
				requireMarked(t, w.node(tc.node), deadline)

				w.cloud.release("a")
				w.pass(5 * time.Second)
				assert.Nil(t, w.node(tc.node))
				assert.Nil(t, w.node("a"))
				w.poll()
				assert.Empty(t, w.notices.Reclaiming())
			})
		})
	}
}
