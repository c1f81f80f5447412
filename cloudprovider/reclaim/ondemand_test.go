package reclaim

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

// labelled is what agents and operators say of the Node.
func labelled(key, value string) func(*corev1.Node) {
	return func(node *corev1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, key, value) }
}

// unreplaced has pods wait for a replacement.
func unreplaced(c *settings) { c.Replaced = func(string) bool { return false } }

func TestNoNoticeTouchesAnOnDemandNode(t *testing.T) {
	for kind, label := range map[string]func(*corev1.Node){
		"ACK's label": labelled(api.LabelSpotStrategy, alicloud.NoSpot),
		"our label":   labelled(api.LabelPurchaseOption, "on-demand"),
	} {
		rows := map[notice.Source]func(w *world){
			notice.SourcePoll:      func(w *world) { w.cloud.reclaim("a") },
			notice.SourceAgent:     func(w *world) { w.updateNode("a", agentSays(time.Now().Add(4*time.Minute))) },
			notice.SourceCondition: func(w *world) { w.updateNode("a", expired("True", time.Now())) },
			notice.SourcePush: func(w *world) {
				require.Equal(w, http.StatusOK, w.sender().push(interrupted("a", time.Now())))
				w.updateNode("a", annotated(api.AnnotationNoticePush, time.Now().Add(4*time.Minute).UTC().Format(time.RFC3339)))
			},
		}
		requireEverySource(t, rows)
		for source, speak := range rows {
			t.Run(kind+", "+string(source), func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.addNode("a", label)
					w.addPod("p", "a")
					w.start()
					speak(w)
					w.pass(6 * time.Minute)
					requireUnmarked(t, w.node("a"))
					assert.False(t, w.node("a").Spec.Unschedulable)
					assert.Equal(t, []string{"p"}, w.pods())
					assert.Empty(t, w.notices.Reclaiming())
					assert.Zero(t, w.notified.Load())
					assert.Empty(t, w.seen())
				})
			})
		}
	}
}

func TestASpotNodeWithALabelIsReclaimed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", labelled(api.LabelSpotStrategy, alicloud.SpotAsPriceGo), labelled(api.LabelPurchaseOption, "on-demand"))
		w.start()
		w.cloud.reclaim("a")
		w.poll()
		assert.True(t, cluster.IsMarked(w.node("a")), "ACK knows better")
	})
}

func TestMarksOnANodeThatIsOnDemandAfterAllAreTakenOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.start(unreplaced, func(c *settings) { c.PollInterval = time.Hour })
		w.updateNode("a", agentSays(time.Now().Add(4*time.Minute)))
		w.pass(time.Second)
		require.True(t, cluster.IsMarked(w.node("a")))
		w.updateNode("a", labelled(api.LabelSpotStrategy, alicloud.NoSpot)) // ACK labels some time after the Node has joined
		w.pass(time.Second)
		requireUnmarked(t, w.node("a"))
		assert.False(t, w.node("a").Spec.Unschedulable)
		assert.Empty(t, w.notices.Reclaiming())
		assert.Equal(t, []string{"p"}, w.pods())
	})
}

func TestWhatWasHeardOfANodeBeforeItsLabelCameIsForgotten(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.start(func(c *settings) { c.PollInterval = time.Hour })
		var busy atomic.Bool
		busy.Store(true)
		w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return busy.Load(), nil, apierrors.NewTooManyRequests("later", 1) // the label comes before the mark
		})
		w.updateNode("a", agentSays(time.Now().Add(4*time.Minute)))
		w.pass(time.Second)
		require.NotEmpty(t, w.notices.Reclaiming())
		w.updateNode("a", labelled(api.LabelSpotStrategy, alicloud.NoSpot))
		busy.Store(false)
		w.pass(time.Minute)
		requireUnmarked(t, w.node("a"))
		assert.Empty(t, w.notices.Reclaiming(), "or core would take its instance for one that goes")
	})
}

func TestANodeWithoutALabelIsGivenBackWhenECSSaysThatItIsOnDemand(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.cloud.buyOnDemand("a")
		w.start(unreplaced)
		w.updateNode("a", agentSays(time.Now().Add(4*time.Minute)))
		w.pass(2 * poll.DefaultInterval)
		requireUnmarked(t, w.node("a"))
		assert.Equal(t, []string{"p"}, w.pods())
	})
}
