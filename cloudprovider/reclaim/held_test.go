package reclaim

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

// unlimited acts upon all pushed notices, however many are unconfirmed.
func unlimited(c *settings) {
	all := intstr.FromString("100%")
	c.MaxUnconfirmed = &all
}

// refute pushes notices for the Nodes and waits until ECS has contradicted them.
func (w *world) refute(nodes ...string) {
	w.Helper()
	w.push(nodes...)
	w.pass(time.Second)
	require.Equal(w, nodes, w.markedOf(nodes))
	w.pass(pushPatience + 2*poll.DefaultInterval)
	require.Empty(w, w.markedOf(nodes), "taken back")
	w.seen()
}

func TestAPushedNoticeAfterAFalseOneIsHeldUntilItIsConfirmed(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "shortly before it counts again": holdFor - 2*time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.crowd(10)
				w.start(unlimited)
				w.refute("n00")
				w.pass(after)
				// The time is the sender's to choose, up to a minute ahead.
				require.Equal(t, http.StatusOK, w.sender().push(interrupted("n00", time.Now().Add(maxSkew))))
				w.pass(5 * time.Second)
				requireUnmarked(t, w.node("n00"))
				assert.Equal(t, []string{"SpotReclaimHeld n00"}, w.seen())

				w.stop()
				w.start(unlimited)
				w.pass(2 * time.Minute)
				requireUnmarked(t, w.node("n00"))
				w.cloud.reclaim("n00")
				w.poll()
				assert.True(t, cluster.IsMarked(w.node("n00")))
			})
		})
	}
	t.Run("after it came to nothing while ECS was away", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.crowd(10)
			w.start(unlimited)
			w.refute("n00")
			w.push("n00")
			w.pass(time.Second)
			requireUnmarked(t, w.node("n00"))
			broken := errors.New("ServiceUnavailable")
			w.cloud.fail(broken, broken)
			w.pass(holdFor)
			w.push("n00")
			w.pass(time.Second)
			assert.True(t, cluster.IsMarked(w.node("n00")), "it is another notice")
		})
	})
	t.Run("half an hour later", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.crowd(10)
			w.start(unlimited)
			w.refute("n00")
			w.pass(holdFor)
			w.push("n00")
			w.pass(time.Second)
			assert.True(t, cluster.IsMarked(w.node("n00")), "acted upon again")
		})
	})
}

func TestANoticeOfAnotherSourceCountsAtOnceAfterAFalsePushedOne(t *testing.T) {
	for source, speak := range map[string]func(w *world){
		"ECS":            func(w *world) { w.cloud.reclaim("a") },
		"the node-agent": func(w *world) { w.updateNode("a", agentSays(time.Now().Add(4*time.Minute))) },
		"the condition":  func(w *world) { w.updateNode("a", expired("True", time.Now())) },
	} {
		t.Run(source, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.start()
				w.refute("a")
				speak(w)
				w.poll()
				assert.True(t, cluster.IsMarked(w.node("a")))
				assert.NotContains(t, w.seen(), "SpotReclaimHeld a")
			})
		})
	}
}

func TestFalsePushedNoticesDoNotGoOnToOtherNodes(t *testing.T) {
	inBubble(t, func(w *world) {
		nodes := w.crowd(20)
		w.start()
		w.refute(nodes[:2]...)
		for i := 2; i < 10; i += 2 {
			w.push(nodes[i : i+2]...)
			w.pass(time.Minute)
			require.Empty(t, w.markedOf(nodes), "a tenth was closed already")
		}
		w.stop()
		w.start() // a new leader knows it too
		w.push(nodes[10])
		w.pass(time.Second)
		require.Empty(t, w.markedOf(nodes))
		w.cloud.reclaim(nodes[10])
		w.poll()
		require.Equal(t, nodes[10:11], w.markedOf(nodes), "but a true one counts at once")

		w.pass(countFor)
		w.push(nodes[11])
		w.pass(time.Second)
		assert.True(t, cluster.IsMarked(w.node(nodes[11])), "acted upon again")
	})
}

func TestTheNextLeaderRemovesAPushedNoticeThatStandsForNothing(t *testing.T) {
	for name, value := range map[string]string{"it is long over": "1999-12-31T23:00:00Z", "it cannot be read": "soon"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a", annotated(api.AnnotationNoticePush, value))
				w.start()
				w.pass(time.Second)
				assert.NotContains(t, w.node("a").Annotations, api.AnnotationNoticePush)
				requireUnmarked(t, w.node("a"))
				assert.Empty(t, w.seen())
			})
		})
	}
}
