package reclaim

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// drillFor is how long the drills of the tests may take.
const drillFor = 2 * time.Minute

// startDrill has it written on the Nodes, as the command drill does, and returns when it ends at the latest.
func (w *world) startDrill(until notice.Until, nodes ...string) (end time.Time) {
	w.Helper()
	d, err := notice.NewDrill(until, time.Now(), drillFor)
	require.NoError(w, err)
	for _, node := range nodes {
		w.updateNode(node, annotated(api.AnnotationDrill, d.String()))
	}
	w.pass(time.Millisecond)
	return d.End
}

func undrilled(node *corev1.Node) { delete(node.Annotations, api.AnnotationDrill) }

// requireRestored checks that the Node is as it was before, but for what is not the autoscaler's.
func requireRestored(t *testing.T, before, node *corev1.Node) {
	t.Helper()
	requireUnmarked(t, node)
	assert.Equal(t, before.Spec, node.Spec)
	assert.Equal(t, before.Labels, node.Labels)
	assert.Equal(t, len(before.Annotations), len(node.Annotations), "annotations: %v", node.Annotations)
}

func TestADrillUntilTheCheckpointAsksTheJobsAndRestoresTheNode(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		w.gang("train", "worker", 2, awaiting)
		w.addPod("neighbour", "train-worker-0")
		f.start()
		before := w.node("train-worker-0")
		w.seen()
		ended := value(t, "gpu_spot_drills_total", "checkpoint", "completed")
		checkpoints := value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged")
		end := w.startDrill(notice.UntilCheckpoint, "train-worker-0")
		requireMarked(t, w.node("train-worker-0"), end)
		assert.EqualValues(t, 1, w.notified.Load(), "core is to buy the replacement")
		w.pass(10 * time.Second)
		request := w.request("train-worker-0")
		assert.True(t, strings.HasSuffix(request, "-drill"), request)
		assert.Equal(t, request, w.request("train-worker-1"), "the survivor saves its work, too")
		assert.Len(t, w.controller.Reclaims(), 1)
		assert.Equal(t, "drill", w.controller.Reclaims()[0].Source)
		assert.Equal(t, 1.0, value(t, "gpu_spot_drills_in_progress"))
		assert.Zero(t, value(t, "gpu_spot_reclaims_in_progress"))

		w.pass(50 * time.Second)
		assert.True(t, cluster.IsMarked(w.node("train-worker-0")), "the acknowledgement is awaited")
		w.say("train-worker-1")
		w.pass(2 * time.Second)
		requireRestored(t, before, w.node("train-worker-0"))
		w.pass(time.Minute)
		requireRestored(t, before, w.node("train-worker-0"))
		assert.Empty(t, w.gone())
		assert.Empty(t, f.called(), "nothing is decided")
		for _, pod := range []string{"train-worker-0", "train-worker-1", "neighbour"} {
			assert.Empty(t, w.request(pod))
			assert.NotContains(t, w.pod(pod).Annotations, api.AnnotationReclaimDeadline)
		}
		assert.Equal(t, []string{"SpotCheckpointAcknowledged train", "SpotDrillEnded train-worker-0", "SpotReclaimNotice train-worker-0",
			"SpotReclaimWarned train-worker-0"}, w.seen())
		assert.Equal(t, ended+1, value(t, "gpu_spot_drills_total", "checkpoint", "completed"))
		assert.Equal(t, checkpoints, value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged"), "it was none of a reclaim")
		assert.Empty(t, w.controller.Reclaims())
		assert.Empty(t, w.controller.JobReclaims())
	})
}

func TestADrillUntilTheDrainMovesThePodsAndGivesTheNodesBackTogether(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", withTaint)
		w.addNode("b")
		w.addPod("p", "a", grace(time.Hour))
		w.addPod("q", "b")
		w.protect("q")
		w.start(atOnce)
		a, b := w.node("a"), w.node("b")
		w.startDrill(notice.UntilDrain, "a", "b")
		w.pass(30 * time.Second)
		assert.Equal(t, []string{"q"}, w.pods())
		assert.True(t, cluster.IsDrained(w.node("a")))
		assert.True(t, cluster.IsMarked(w.node("a")), "in a reclaim it would not be there for the pod of the other")
		w.unprotect("q")
		w.pass(15 * time.Second)
		assert.Empty(t, w.pods())
		requireRestored(t, a, w.node("a"))
		requireRestored(t, b, w.node("b"))
		for _, action := range w.client.Actions() {
			if eviction, ok := action.(clienttesting.CreateActionImpl); ok && eviction.Subresource == "eviction" {
				assert.Nil(t, eviction.Object.(*policyv1.Eviction).DeleteOptions.GracePeriodSeconds, "the pod has all the time that it says it needs")
			}
		}
		assert.NotContains(t, w.requests(), "delete pods")
		assert.NotContains(t, w.requests(), "delete nodes")
	})
}

func TestADrillThatIsNotDoneInTimeBreaksNoPDBAndRestoresTheNode(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.protect("p")
		w.start(atOnce)
		before := w.node("a")
		w.startDrill(notice.UntilDrain, "a")
		w.pass(drillFor - 2*time.Second)
		assert.True(t, cluster.IsMarked(w.node("a")))
		w.pass(4 * time.Second)
		requireRestored(t, before, w.node("a"))
		assert.Equal(t, []string{"p"}, w.pods())
		assert.Empty(t, w.request("p"))
		assert.NotContains(t, w.requests(), "delete pods")
		assert.Less(t, len(w.client.Actions()), 200, "and the API server is not asked without end")
	})
}

func TestADrillEndsWhereECSCannotBeAsked(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a", awaiting)
		w.start()
		before := w.node("a")
		w.cloud.fail(errors.New("away"), errors.New("away"))
		w.startDrill(notice.UntilCheckpoint, "a")
		w.pass(10 * time.Second)
		assert.True(t, cluster.IsMarked(w.node("a")))
		w.say("p")
		w.pass(2 * time.Second)
		requireRestored(t, before, w.node("a"))
	})
}

func TestAnAcknowledgementThatDoesNotComeIsToldAndEndsTheDrill(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a", noted(api.AnnotationAwaitCheckpoint, "20s"))
		w.start()
		before, missed := w.node("a"), value(t, "gpu_spot_drills_total", "checkpoint", "missed")
		w.startDrill(notice.UntilCheckpoint, "a")
		w.pass(18 * time.Second)
		assert.True(t, cluster.IsMarked(w.node("a")))
		w.pass(5 * time.Second)
		requireRestored(t, before, w.node("a"))
		assert.Equal(t, missed+1, value(t, "gpu_spot_drills_total", "checkpoint", "missed"))
		assert.Contains(t, w.seen(), "SpotCheckpointMissed p")
		assert.Empty(t, w.gone())
	})
}

func TestAnOperatorEndsADrillByTakingItOffTheNode(t *testing.T) {
	for _, until := range []notice.Until{notice.UntilCheckpoint, notice.UntilDrain} {
		inBubble(t, func(w *world) {
			w.addNode("a")
			w.addPod("p", "a", awaiting)
			w.start()
			before := w.node("a")
			w.startDrill(until, "a")
			w.pass(5 * time.Second)
			w.updateNode("a", undrilled)
			w.pass(2 * time.Second)
			requireRestored(t, before, w.node("a"))
			w.pass(drillFor)
			requireRestored(t, before, w.node("a"))
			assert.Equal(t, []string{"p"}, w.pods())
		})
	}
}

func TestWhatWasCordonedBeforeADrillStaysSo(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a", cordoned, annotated(api.AnnotationReclaimCancelled, "2020-01-01T00:00:00Z"))
		w.start()
		before := w.node("a")
		w.startDrill(notice.UntilCheckpoint, "a")
		w.pass(3 * time.Second)
		requireRestored(t, before, w.node("a"))
		assert.True(t, w.node("a").Spec.Unschedulable)
		assert.Equal(t, "2020-01-01T00:00:00Z", w.node("a").Annotations[api.AnnotationReclaimCancelled], "a drill withdraws no notice")
	})
}

func TestANoticeTakesThePlaceOfADrill(t *testing.T) {
	for name, announce := range map[string]func(w *world){
		"of the poll":                 func(w *world) { w.cloud.reclaim("a") },
		"of a poll with a bad filter": func(w *world) { w.cloud.setBlind(true); w.cloud.reclaim("a") },
		"of the node-agent": func(w *world) {
			w.updateNode("a", agentSays(time.Now().Add(5*time.Minute)))
			w.cloud.reclaim("a")
		},
		"of the node-problem-detector": func(w *world) { w.updateNode("a", expired("True", time.Now())); w.cloud.reclaim("a") },
	} {
		for _, until := range []notice.Until{notice.UntilCheckpoint, notice.UntilDrain} {
			t.Run(name+" "+string(until), func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.addNode("a")
					w.addPod("p", "a", awaiting)
					w.start(atOnce)
					w.startDrill(until, "a")
					w.pass(5 * time.Second)
					rehearsed := w.request("p")
					w.seen()
					announce(w)
					w.pass(5 * time.Second)
					node := w.node("a")
					requireMarked(t, node, cluster.TimeOf(node, api.AnnotationReclaimDeadline))
					assert.WithinDuration(t, time.Now().Add(5*time.Minute), cluster.TimeOf(node, api.AnnotationReclaimDeadline), 10*time.Second)
					assert.NotContains(t, node.Annotations, api.AnnotationDrill)
					assert.NotEqual(t, "drill", node.Annotations[api.AnnotationReclaimSource])
					assert.NotEqual(t, rehearsed, w.request("p"), "what was saved for the drill is old")
					assert.NotContains(t, w.request("p"), "-drill")
					assert.EqualValues(t, 2, w.notified.Load())
					assert.Contains(t, w.seen(), "SpotReclaimNotice a")
					w.pass(drillFor)
					assert.True(t, cluster.IsMarked(w.node("a")), "whenever the drill was to end")
					w.say("p")
					w.pass(15 * time.Second)
					assert.Empty(t, w.pods())
				})
			})
		}
	}
}

func TestAPushedNoticeDuringADrillEvictsNobodyBeforeItIsConfirmed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.start(atOnce)
		before := w.node("a")
		w.startDrill(notice.UntilCheckpoint, "a")
		w.updateNode("a", func(*corev1.Node) {})
		require.Equal(t, http.StatusOK, w.sender().push(interrupted("a", time.Now())))
		w.pass(10 * time.Second)
		assert.Equal(t, "push", w.node("a").Annotations[api.AnnotationReclaimSource])
		assert.Equal(t, []string{"p"}, w.pods())
		w.pass(2 * time.Minute)
		requireUnmarked(t, w.node("a"))
		assert.Equal(t, before.Spec, w.node("a").Spec, "ECS has contradicted it")
		assert.Contains(t, w.node("a").Annotations, api.AnnotationReclaimCancelled)
	})
}

func TestADrillLiftsNoBoundOfPushedNotices(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a", awaiting)
		w.start(func(c *settings) { c.MaxUnconfirmed = ptr.To(intstr.FromInt32(0)) })
		w.startDrill(notice.UntilCheckpoint, "a")
		require.Equal(t, http.StatusOK, w.sender().push(interrupted("a", time.Now())))
		w.pass(5 * time.Second)
		assert.Equal(t, "drill", w.node("a").Annotations[api.AnnotationReclaimSource])
		assert.Contains(t, w.seen(), "SpotReclaimHeld a")
	})
}

func TestAFaultDuringADrillTakesItsPlace(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a")
		w.addPod("p", "a", awaiting)
		w.start(pools.watchFaults, atOnce)
		w.startDrill(notice.UntilCheckpoint, "a")
		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence + 2*time.Second)
		assert.Equal(t, "fault", w.node("a").Annotations[api.AnnotationReclaimSource])
		w.say("p")
		w.pass(20 * time.Second)
		assert.Nil(t, w.node("a"))
		assert.Equal(t, []string{"a"}, pools.gone())
	})
}

func TestADrillEndsWhenItsJobLosesAnotherNodeInEarnest(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 3)
		w.gang("train", "worker", 3, awaiting)
		f.start(atOnce)
		before := w.node("train-worker-0")
		w.startDrill(notice.UntilDrain, "train-worker-0")
		w.pass(3 * time.Second)
		w.cloud.reclaim("train-worker-1")
		w.pass(5 * time.Second)
		requireRestored(t, before, w.node("train-worker-0"))
		w.say("train-worker-0")
		w.pass(30 * time.Second)
		assert.Equal(t, []string{"shrink train train-worker-1"}, f.called(), "the drilled worker survives")
		assert.Equal(t, []string{"train-worker-0", "train-worker-2"}, w.pods())
	})
}

func TestADrillThatMayNotBeginIsTakenOffAndTold(t *testing.T) {
	for name, change := range map[string]func(node *corev1.Node){
		"no drill":    annotated(api.AnnotationDrill, "yes"),
		"no end":      annotated(api.AnnotationDrill, "drain 2000-01-01T00:00:00Z"),
		"unknown aim": annotated(api.AnnotationDrill, "reboot 2000-01-01T00:00:00Z/2000-01-01T00:05:00Z"),
		"too long":    annotated(api.AnnotationDrill, "drain 2000-01-01T00:00:00Z/2000-01-02T00:00:00Z"),
		"over":        annotated(api.AnnotationDrill, "drain 1999-01-01T00:00:00Z/1999-01-01T00:05:00Z"),
		"far ahead":   annotated(api.AnnotationDrill, "drain 2099-01-01T00:00:00Z/2099-01-01T00:05:00Z"),
		"on-demand": func(node *corev1.Node) {
			labelled(api.LabelSpotStrategy, "NoSpot")(node)
			annotated(api.AnnotationDrill, "drain 2000-01-01T00:00:00Z/2000-01-01T00:05:00Z")(node) // a bubble begins then
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addPod("p", "a")
				w.start(atOnce)
				w.updateNode("a", change)
				w.pass(3 * time.Second)
				requireUnmarked(t, w.node("a"))
				assert.NotContains(t, w.node("a").Annotations, api.AnnotationDrill)
				assert.False(t, w.node("a").Spec.Unschedulable)
				assert.Equal(t, []string{"SpotDrillEnded a"}, w.seen())
				assert.Equal(t, []string{"p"}, w.pods())
			})
		})
	}
}

func TestADrillOnANodeThatIsReclaimingChangesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.start()
		w.cloud.reclaim("a")
		w.poll()
		deadline := cluster.TimeOf(w.node("a"), api.AnnotationReclaimDeadline)
		w.startDrill(notice.UntilCheckpoint, "a")
		w.pass(time.Second)
		requireMarked(t, w.node("a"), deadline)
		assert.Equal(t, "ecs-poll", w.node("a").Annotations[api.AnnotationReclaimSource])
		assert.NotContains(t, w.node("a").Annotations, api.AnnotationDrill)
		w.pass(time.Minute)
		assert.Empty(t, w.pods())
	})
}

func TestADrillWithoutALeaderIsOverWhenTheNextOneComes(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world){
		"its time is over":          func(w *world) { w.pass(time.Hour) },
		"the operator has ended it": func(w *world) { w.updateNode("a", undrilled) },
		"its taint alone is left": func(w *world) {
			w.pass(time.Hour)
			w.updateNode("a", func(node *corev1.Node) { delete(node.Annotations, api.AnnotationReclaimDeadline) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addPod("p", "a", awaiting)
				w.start()
				before := w.node("a")
				w.startDrill(notice.UntilDrain, "a")
				w.pass(5 * time.Second)
				w.stop()
				meanwhile(w)
				w.start()
				w.pass(3 * time.Second)
				requireRestored(t, before, w.node("a"))
				assert.Equal(t, []string{"p"}, w.pods())
				assert.Empty(t, w.request("p"))
			})
		})
	}
}

// TestTheLeaderOfADrillMayBeKilledAtAnyTime kills it after its first write, in another bubble after its second, and so on until it has
// nothing more to write.
func TestTheLeaderOfADrillMayBeKilledAtAnyTime(t *testing.T) {
	for _, until := range []notice.Until{notice.UntilCheckpoint, notice.UntilDrain} {
		finished := false
		for writes := 0; !finished; writes++ {
			require.Less(t, writes, 60, "it never ends")
			t.Run(fmt.Sprintf("%s %d", until, writes), func(t *testing.T) {
				withJobs(t, func(w *world, f *fakeJobs) { finished = killInDrill(w, f, until, writes) })
			})
		}
	}
}

// killInDrill returns whether the leader lived to the end.
func killInDrill(w *world, f *fakeJobs, until notice.Until, writes int) (lived bool) {
	k := &killer{}
	w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetVerb() {
		case "patch", "create", "delete":
			return k.strike(), nil, apierrors.NewInternalError(errors.New("the leader is dead"))
		}
		return false, nil, nil
	})
	f.add("train", 2, 2)
	w.gang("train", "worker", 2, awaiting)
	leader := func() { w.start(atOnce, func(c *settings) { c.Jobs = mortal{f, k} }) }
	leader()
	before := [2]*corev1.Node{w.node("train-worker-0"), w.node("train-worker-1")}
	k.set(true, writes)
	w.startDrill(until, "train-worker-0", "train-worker-1")
	w.pass(5 * time.Second)
	speak := func() {
		if len(w.pods()) > 0 && w.request("train-worker-0") != "" {
			w.say("train-worker-0")
		}
	}
	k.pause(speak)
	w.pass(30 * time.Second)
	lived = !k.struck()
	w.stop()
	k.set(false, 0)
	leader()
	w.pass(5 * time.Second)
	speak()
	w.pass(drillFor)

	for i, node := range before {
		requireRestored(w.T, node, w.node(fmt.Sprintf("train-worker-%d", i)))
	}
	decided := []string(nil)
	if until == notice.UntilDrain {
		decided = []string{"suspend train"}
		assert.Empty(w, w.pods())
		assert.True(w, f.suspended("train"), "the supervisor resumes it now that there is room")
	} else {
		assert.Empty(w, w.gone())
		assert.Empty(w, w.request("train-worker-0"))
		assert.Empty(w, w.request("train-worker-1"))
	}
	assert.ElementsMatch(w, decided, f.called())
	return lived
}
