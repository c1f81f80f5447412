package reclaim

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

func TestTheNodeOfAnInstanceThatWasGivenBackIsDeletedOnceTheInstanceIsGone(t *testing.T) {
	inBubble(t, func(w *world) {
		var listed atomic.Bool
		listed.Store(true)
		w.addNode("a")
		w.addNode("other")
		w.addPod("left", "a")
		w.start(listing(func(string) bool { return listed.Load() }))
		w.removals.Note([]string{"i-a"})
		w.pass(time.Second)
		require.NotEmpty(t, w.node("a").Annotations[api.AnnotationRemoved], "for the next leader")
		w.cloud.release("a")
		w.pass(10 * time.Minute)
		require.NotNil(t, w.node("a"), "ESS lists it")

		w.cloud.set("i-a", "Stopped")
		listed.Store(false)
		w.pass(10 * time.Minute)
		require.NotNil(t, w.node("a"), "ECS lists it")
		w.cloud.fail(nil, errors.New("away"))
		w.cloud.release("a")
		w.pass(time.Minute)
		require.NotNil(t, w.node("a"), "nobody knows")

		w.cloud.fail(nil, nil)
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
		assert.Empty(t, w.pods())
		assert.NotNil(t, w.node("other"))
		assert.Equal(t, []string{"SpotNodeRemoved a"}, w.seen())
		w.pass(time.Minute)
		assert.Empty(t, w.removals.All())
		assert.Equal(t, notice.Pending, w.notices.Verdicts.On("i-a"), "it is forgotten")
	})
}

func TestOneAnswerThatAnInstanceIsGoneIsNotBelieved(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.start()
		w.cloud.release("a")
		w.removals.Note([]string{"i-a"})
		w.poll()
		w.cloud.set("i-a", "Stopping")
		w.pass(time.Minute)
		assert.NotNil(t, w.node("a"))
	})
}

func TestANewLeaderDeletesTheNodesOfWhatTheLastOneGaveBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.start()
		w.removals.Note([]string{"i-a"})
		w.pass(time.Second)
		w.stop()
		w.cloud.release("a")
		w.start()
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

func TestARemovalThatIsAcceptedAtTheVeryEndIsWrittenOnItsNode(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addNode("other")
		w.start()
		w.pass(time.Second)
		w.stop()
		w.removals.Note([]string{"i-a", "i-unknown"})
		require.NoError(w, w.controller.Finish(w.Context()))
		assert.NotEmpty(t, w.node("a").Annotations[api.AnnotationRemoved], "for release-all, which may come next")
		assert.Empty(t, w.node("other").Annotations[api.AnnotationRemoved])
	})
}

func TestANodeThatJoinsAfterItsInstanceWasGivenBackGoesToo(t *testing.T) {
	inBubble(t, func(w *world) {
		w.start()
		w.cloud.set("i-a", "Running")
		w.removals.Note([]string{"i-a"})
		w.pass(time.Minute)
		w.addNode("a")
		w.pass(time.Second)
		require.NotEmpty(t, w.node("a").Annotations[api.AnnotationRemoved])
		w.cloud.release("a")
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

func TestNodesThatWereNotGivenBackAreLeftToTheCloudController(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.cloud.withdraw("a")
		w.pass(time.Minute)
		assert.NotContains(t, w.node("a").Annotations, api.AnnotationRemoved)
		w.cloud.release("a")
		w.pass(10 * time.Minute)
		assert.NotNil(t, w.node("a"))
	})
}

func TestTheNodeThatTookTheNameIsNotDeleted(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.start()
		w.removals.Note([]string{"i-a"})
		w.pass(time.Second)
		old := w.node("a")
		require.NoError(t, w.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		w.addNode("a", func(node *corev1.Node) { node.UID, node.Spec.ProviderID = types.UID("uid-new"), "cn-beijing.i-new" })
		w.cloud.set("i-new", "Running")
		w.cloud.release("a")
		w.pass(time.Minute)
		require.NotNil(t, w.node("a"))
		assert.NotEqual(t, old.UID, w.node("a").UID)
	})
}

func TestOnlyTheNodeAndThePodsThatWereSeenAreDeleted(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.protect("p")
		w.cloud.reclaim("a")
		w.start()
		uids := map[string]types.UID{"nodes": w.node("a").UID, "pods": w.pod("p").UID}
		w.cloud.release("a")
		w.pass(time.Minute)
		deleted := 0
		for _, action := range w.client.Actions() {
			if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
				deleted++
				preconditions := deletion.DeleteOptions.Preconditions
				require.NotNil(t, preconditions, "%s %s", deletion.Resource.Resource, deletion.Name)
				assert.Equal(t, uids[deletion.Resource.Resource], *preconditions.UID, "another may have its name by now")
			}
		}
		assert.GreaterOrEqual(t, deleted, 2)
	})
}
