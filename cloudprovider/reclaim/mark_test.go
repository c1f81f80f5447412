package reclaim

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/util/taints"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

var spotTaint = corev1.Taint{Key: "spot", Value: "true", Effect: corev1.TaintEffectNoSchedule}

func withTaint(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, spotTaint) }

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

// requireMarked checks all four marks, and that they agree.
func requireMarked(t *testing.T, node *corev1.Node, deadline time.Time) {
	t.Helper()
	require.NotNil(t, node)
	deadline = deadline.Truncate(time.Second)
	require.Equal(t, deadline.UTC().Format(time.RFC3339), node.Annotations[api.AnnotationReclaimDeadline])
	require.Equal(t, "true", node.Labels[api.LabelReclaiming])
	require.True(t, node.Spec.Unschedulable)
	require.Contains(t, node.Spec.Taints, corev1.Taint{
		Key: api.TaintReclaim, Value: strconv.FormatInt(deadline.Unix(), 10), Effect: corev1.TaintEffectNoSchedule,
	})
}

var markAnnotations = []string{
	api.AnnotationReclaimDeadline, api.AnnotationReclaimNoticed, api.AnnotationReclaimStated, api.AnnotationReclaimSource,
	api.AnnotationReclaimConfirmed, api.AnnotationReclaimCordoned, api.AnnotationReclaimDrained, api.AnnotationReclaimForced,
}

// requireUnmarked checks that nothing of ours is left.
func requireUnmarked(t *testing.T, node *corev1.Node) {
	t.Helper()
	require.NotNil(t, node)
	for _, note := range markAnnotations {
		require.NotContains(t, node.Annotations, note)
	}
	require.NotContains(t, node.Labels, api.LabelReclaiming)
	require.False(t, taints.TaintKeyExists(node.Spec.Taints, api.TaintReclaim), "taints: %v", node.Spec.Taints)
}

func TestANoticeMarksTheNodeInOnePatch(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", withTaint)
		w.addNode("b")
		w.start()
		w.client.ClearActions()
		w.cloud.reclaim("a")
		noticed := time.Now().Add(time.Second) // start let a second pass since the last poll
		w.poll()

		requireMarked(t, w.node("a"), noticed.Add(notice.DefaultPeriod))
		assert.Contains(t, w.node("a").Spec.Taints, spotTaint, "other taints stay")
		assert.Equal(t, "a", w.node("a").Labels["pool"], "other labels stay")
		requireUnmarked(t, w.node("b"))
		assert.Equal(t, []string{"patch nodes", "patch nodes"}, w.requests(), "one to mark, one to note that it is empty")
		assert.Equal(t, []string{"SpotReclaimDrained a", "SpotReclaimNotice a"}, w.seen())
		assert.EqualValues(t, 1, w.notified.Load())
		assert.Equal(t, []string{"i-a"}, w.notices.Reclaiming().UnsortedList())
	})
}

func TestTheNodeIsMarkedWhateverTheFormOfItsProviderID(t *testing.T) {
	for name, tc := range map[string]struct {
		providerID string
		marked     bool
	}{
		"as ACK writes it":       {"cn-beijing.i-a", true},
		"with a scheme":          {"alicloud://cn-beijing.i-a", true},
		"none":                   {"", false},
		"of another cloud":       {"aws:///us-east-1a/i-a", false},
		"of a kwok or kind node": {"kind://docker/kind/i-a", false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a", func(node *corev1.Node) { node.Spec.ProviderID = tc.providerID })
				w.cloud.reclaim("a")
				w.start()
				assert.Equal(t, tc.marked, cluster.IsMarked(w.node("a")))
			})
		})
	}
}

func TestANoticeWaitsForItsNode(t *testing.T) {
	inBubble(t, func(w *world) {
		w.cloud.reclaim("late")
		w.start()
		noticed := time.Now().Add(-time.Second)
		require.Zero(t, w.notified.Load(), "nothing to replace yet")
		require.True(t, w.notices.Reclaiming().Has("i-late"))
		w.pass(30 * time.Second)

		w.addNode("late")
		w.cloud.reclaim("late")
		w.pass(0)
		requireMarked(t, w.node("late"), noticed.Add(notice.DefaultPeriod))
		assert.EqualValues(t, 1, w.notified.Load())
	})
}

func TestANodeWhoseProviderIDComesAfterItsNoticeIsReplacedAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("late", func(node *corev1.Node) { node.Spec.ProviderID = "" })
		w.cloud.reclaim("late")
		w.start()
		require.Zero(t, w.notified.Load(), "nothing to replace yet")

		w.updateNode("late", func(node *corev1.Node) { node.Spec.ProviderID = "cn-beijing.i-late" })
		w.pass(100 * time.Millisecond)
		assert.True(t, cluster.IsMarked(w.node("late")))
		assert.EqualValues(t, 1, w.notified.Load())
		w.pass(30 * time.Second)
		assert.EqualValues(t, 1, w.notified.Load(), "once")
	})
}

func TestANoticeOfAForeignInstanceIsForgottenWithIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.cloud.reclaim("foreign")
		w.start()
		require.True(t, w.notices.Reclaiming().Has("i-foreign"))
		w.cloud.release("foreign")
		w.pass(idleFactor * poll.DefaultInterval) // there is nothing of ours
		assert.Empty(t, w.notices.Reclaiming())
		assert.Empty(t, w.requests())
	})
}

func TestMarksThatSomebodyTakesOffArePutBack(t *testing.T) {
	for name, meddle := range map[string]func(*corev1.Node){
		"untainted":        func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{spotTaint} },
		"uncordoned":       func(node *corev1.Node) { node.Spec.Unschedulable = false },
		"label removed":    func(node *corev1.Node) { delete(node.Labels, api.LabelReclaiming) },
		"deadline removed": func(node *corev1.Node) { delete(node.Annotations, api.AnnotationReclaimDeadline) },
		"deadline garbled": func(node *corev1.Node) { node.Annotations[api.AnnotationReclaimDeadline] = "soon" },
		"taint garbled": func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{spotTaint, {Key: api.TaintReclaim, Value: "soon"}}
		},
		"all notes removed": func(node *corev1.Node) { node.Annotations = nil },
		"everything removed": func(node *corev1.Node) {
			node.Annotations, node.Labels = nil, nil
			node.Spec.Unschedulable, node.Spec.Taints = false, []corev1.Taint{spotTaint}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a", withTaint)
				w.cloud.reclaim("a")
				w.start()
				deadline := time.Now().Add(notice.DefaultPeriod - time.Second)
				requireMarked(t, w.node("a"), deadline)

				w.updateNode("a", meddle)
				w.pass(0)
				requireMarked(t, w.node("a"), deadline)
				assert.Contains(t, w.node("a").Spec.Taints, spotTaint)
			})
		})
	}
}

func TestAMarkDoesNotUndoWhatOthersDidMeanwhile(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		var overtaken atomic.Bool
		w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if overtaken.Swap(true) {
				return false, nil, nil
			}
			node, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "a")
			require.NoError(t, err)
			withTaint(node.(*corev1.Node))
			require.NoError(t, w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
		})
		w.cloud.reclaim("a")
		w.start()
		require.True(t, overtaken.Load())
		requireMarked(t, w.node("a"), time.Now().Add(notice.DefaultPeriod-time.Second))
		assert.Contains(t, w.node("a").Spec.Taints, spotTaint)
	})
}

func TestAMarkIsTriedUntilItHolds(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		var failures atomic.Int32
		w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures.Add(1) <= 5 {
				return true, nil, apierrors.NewInternalError(fmt.Errorf("etcd is away"))
			}
			return false, nil, nil
		})
		w.cloud.reclaim("a")
		w.start()
		w.pass(5 * time.Second)
		requireMarked(t, w.node("a"), time.Now().Add(notice.DefaultPeriod-6*time.Second))
	})
}

func TestANewLeaderGoesOnWithTheDeadlineOnTheNode(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		deadline := time.Now().Add(notice.DefaultPeriod - time.Second)
		w.stop()
		w.seen()
		w.pass(2 * time.Minute)
		w.addPod("p", "a")

		w.start()
		requireMarked(t, w.node("a"), deadline)
		assert.Equal(t, []string{"SpotReclaimEvicted p"}, w.seen(), "no second notice, no second word that it is drained")
		assert.Empty(t, w.pods())
		assert.True(t, w.notices.Reclaiming().Has("i-a"))
	})
}

func TestACorrelatedReclaimIsMarkedBeforeAnythingIsEvicted(t *testing.T) {
	const nodes = 1000
	inBubble(t, func(w *world) {
		for i := range nodes {
			w.addNode(fmt.Sprint(i))
			w.addPod(fmt.Sprintf("pod-%d", i), fmt.Sprint(i))
		}
		w.start()
		w.client.ClearActions()
		for i := range nodes {
			w.cloud.reclaim(fmt.Sprint(i))
		}
		w.poll()

		requests := w.requests()
		require.GreaterOrEqual(t, len(requests), nodes)
		for i, request := range requests[:nodes] {
			require.Equal(t, "patch nodes", request, "request %d", i)
		}
		w.poll()
		for i := range nodes {
			requireMarked(t, w.node(fmt.Sprint(i)), time.Now().Add(notice.DefaultPeriod-3*time.Second))
		}
		assert.Empty(t, w.pods())
		assert.EqualValues(t, 1, w.notified.Load(), "one wake-up for all")
	})
}

func TestReplacementsAreLookedForOnceTheMarksAreMade(t *testing.T) {
	for name, tc := range map[string]struct {
		trouble time.Duration
		after   time.Duration
	}{
		"all of them":                            {2500 * time.Millisecond, 2500 * time.Millisecond},
		"but not much later where one cannot be": {time.Minute, notifyPatience},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addNode("b")
				w.start()
				troubled := time.Now().Add(time.Second + tc.trouble)
				w.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
					busy := action.(clienttesting.PatchAction).GetName() == "b" && time.Now().Before(troubled)
					return busy, nil, apierrors.NewServerTimeout(corev1.Resource("nodes"), "patch", 1)
				})
				w.cloud.reclaim("a")
				w.cloud.reclaim("b")
				w.poll()
				assert.Zero(t, w.notified.Load())
				w.pass(tc.after - 3*time.Second/2)
				assert.Zero(t, w.notified.Load())
				w.pass(3*time.Second/2 + slowestNodeRetry)
				assert.EqualValues(t, 1, w.notified.Load())
			})
		})
	}
}

func TestTheCordonComesWithTheTaintThatFollowsFromIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.start()
		w.cloud.reclaim("a")
		w.poll()
		assert.Contains(t, w.node("a").Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		w.cloud.withdraw("a")
		w.pass(agreeingPolls * poll.DefaultInterval)
		requireUnmarked(t, w.node("a"))
		assert.Empty(t, w.node("a").Spec.Taints)
		assert.False(t, w.node("a").Spec.Unschedulable)
	})
}
