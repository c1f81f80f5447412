package reclaim

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

func TestNoticesOutlastAnAPIServerThatIsAway(t *testing.T) {
	const away = 30 * time.Second
	inBubble(t, func(w *world) {
		var gone atomic.Bool
		w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return gone.Load() && action.GetVerb() != "watch", nil, apierrors.NewServiceUnavailable("connection refused")
		})
		w.addNode("a")
		w.addPod("p", "a")
		w.start()
		w.client.ClearActions()
		gone.Store(true)
		w.cloud.reclaim("a")
		noticed := time.Now()
		w.pass(away)
		assert.Less(t, len(w.client.Actions()), 50, "what cannot be reached is not hammered")

		gone.Store(false)
		w.pass(slowestNodeRetry)
		deadline := cluster.TimeOf(w.node("a"), api.AnnotationReclaimDeadline)
		requireMarked(t, w.node("a"), deadline)
		assert.WithinDuration(t, noticed.Add(notice.DefaultPeriod), deadline, poll.DefaultInterval, "time went on meanwhile")
		w.pass(time.Minute)
		assert.Empty(t, w.pods())
	})
}

func TestANodeThatCannotBeMarkedDoesNotHoldUpTheOthers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			stuck := action.(clienttesting.PatchAction).GetName() == "stuck"
			return stuck, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "stuck", errors.New("a webhook says no"))
		})
		for _, name := range []string{"a", "stuck", "b"} {
			w.addNode(name)
			w.addPod("pod-"+name, name)
			w.cloud.reclaim(name)
		}
		w.start(func(c *settings) { c.ReplaceWait = time.Millisecond })
		w.pass(mark.Patience - 2*time.Second)
		require.Equal(t, []string{"pod-a", "pod-b", "pod-stuck"}, w.pods())
		w.pass(4 * time.Second)
		assert.Equal(t, []string{"pod-stuck"}, w.pods())
	})
}

func TestACordonThatComesWithTheNoticeStaysAfterIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		var overtaken atomic.Bool
		w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if overtaken.Swap(true) {
				return false, nil, nil
			}
			node, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "a")
			require.NoError(t, err)
			cordoned(node.(*corev1.Node))
			require.NoError(t, w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
		})
		w.cloud.reclaim("a")
		w.start()
		requireMarked(t, w.node("a"), time.Now().Add(notice.DefaultPeriod-time.Second))
		w.cloud.withdraw("a")
		w.pass(2 * poll.DefaultInterval)
		requireUnmarked(t, w.node("a"))
		assert.True(t, w.node("a").Spec.Unschedulable, "that was somebody else")
	})
}

func TestADeadlineThatIsOverLeavesNoTimeToAsk(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.start()
		w.cloud.set("i-a", "Stopping")
		w.updateNode("a", agentSays(time.Now().Add(-10*time.Second)))
		w.pass(time.Second)
		assert.Empty(t, w.pods())
		assert.Contains(t, w.seen(), "SpotReclaimDeleted guarded")
	})
}
