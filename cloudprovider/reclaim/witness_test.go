package reclaim

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

func nodeReady(node *corev1.Node) {
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
}

// noticedByAgent is a Node whose own agent has a notice.
func noticedByAgent(node *corev1.Node) {
	node.Annotations = map[string]string{api.AnnotationNoticeAgent: time.Now().Add(notice.DefaultPeriod).UTC().Format(time.RFC3339)}
}

// listed are pools that ESS lists so, and of which no Node is.
type listed struct {
	noPools
	lists func(instanceID string) bool
	read  <-chan struct{}
}

func (l listed) Lists(id string) bool { return l.lists(id) }

func (l listed) FirstRead() <-chan struct{} { return l.read }

// listing has ESS list the instances for which the function returns true.
func listing(lists func(instanceID string) bool) func(*settings) {
	return func(c *settings) { c.Pools = listed{lists: lists, read: noPools{}.FirstRead()} }
}

func TestANodeIsNotTakenForGoneBeforeItIsKnownWhatESSLists(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", noticedByAgent)
		w.addNode("b", func(node *corev1.Node) {
			node.Annotations = map[string]string{api.AnnotationRemoved: "2000-01-01T00:00:00Z"}
		})
		w.addNode("outside", noticedByAgent, nodeReady)
		w.cloud.setHidden(true)
		read := make(chan struct{})
		w.start(func(c *settings) { c.Pools = listed{lists: func(string) bool { return false }, read: read} })
		w.pass(time.Minute)
		assert.NotNil(t, w.node("a"))
		assert.NotNil(t, w.node("b"))
		close(read)
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
		assert.Nil(t, w.node("b"))
		assert.NotNil(t, w.node("outside"), "ESS never listed it")
	})
}

func TestANodeIsNotTakenForGoneBecauseECSShowsNothing(t *testing.T) {
	for name, others := range map[string][]string{
		"other nodes are ready":     {"b", "c"},
		"there is no other to tell": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var gone atomic.Bool
				w.addNode("a", noticedByAgent)
				for _, other := range others {
					w.addNode(other, nodeReady)
				}
				w.addPod("training", "a")
				w.cloud.setHidden(true)
				failures := value(t, "gpu_spot_reclaim_poll_failures_total")
				w.start(listing(func(id string) bool { return id != "i-a" || !gone.Load() }))
				w.pass(time.Minute)
				require.NotNil(t, w.node("a"), "it may live")
				require.NotContains(t, w.seen(), "SpotReclaimReleased a")
				assert.Equal(t, len(others) > 0, value(t, "gpu_spot_reclaim_poll_failures_total") > failures, "an alert watches that")

				w.cloud.setHidden(false)
				w.cloud.release("a")
				gone.Store(true)
				w.pass(time.Minute)
				assert.Nil(t, w.node("a"))
				assert.Contains(t, w.seen(), "SpotReclaimReleased a")
			})
		})
	}
}

func TestANodeIsNotTakenForGoneBecauseECSShowsOnlySome(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", noticedByAgent)
		w.addNode("shown", noticedByAgent)
		w.addNode("witness", nodeReady)
		w.cloud.showOnly("i-shown")
		failures := value(t, "gpu_spot_reclaim_poll_failures_total")
		w.start(listing(func(id string) bool { return id == "i-witness" }))
		w.pass(time.Minute)
		assert.NotNil(t, w.node("a"))
		assert.Greater(t, value(t, "gpu_spot_reclaim_poll_failures_total"), failures)
	})
}

func TestAReadyNodeOutsideOfThePoolsIsNotTakenForGoneWithoutAWitness(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", noticedByAgent, nodeReady)
		w.cloud.setHidden(true)
		w.start(listing(func(string) bool { return false }))
		w.pass(time.Minute)
		require.NotNil(t, w.node("a"))
		w.updateNode("a", func(node *corev1.Node) { node.Status.Conditions = nil })
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"), "its kubelet is silent, too")
	})
}

func TestAReadyNodeThatLeftESSIsGoneIfECSDoesNotShowIt(t *testing.T) {
	inBubble(t, func(w *world) {
		var left atomic.Bool
		w.addNode("a", noticedByAgent, nodeReady)
		w.start(listing(func(string) bool { return !left.Load() }))
		w.pass(time.Minute)
		left.Store(true)
		w.cloud.release("a")
		w.pass(10 * time.Second)
		assert.Nil(t, w.node("a"))
	})
}
