package reclaim

import (
	"fmt"
	"strings"
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
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

func TestAllPodsOfAJobAreWarnedBeforeAnyIsEvicted(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 3)
		w.addNode("a")
		w.addNode("b")
		w.addPod("train-0", "a", of("train", jobs.RoleWorker), awaiting)
		w.addPod("train-1", "b", of("train", jobs.RoleWorker))
		w.addPod("train-2", "b", of("train", jobs.RoleWorker), succeeded)
		w.addPod("other", "b")
		w.cloud.reclaim("a")
		f.start()

		id := w.request("train-0")
		require.NotEmpty(t, id)
		assert.Equal(t, "i-a", w.pod("train-0").Annotations[api.AnnotationReclaimInstance])
		assert.Equal(t, id, w.request("train-1"), "the survivor is warned too")
		assert.NotContains(t, w.pod("train-1").Annotations, api.AnnotationReclaimInstance, "but it loses nothing itself")
		for _, pod := range []string{"train-0", "train-1"} {
			assert.Equal(t, w.node("a").Annotations[api.AnnotationReclaimDeadline], w.pod(pod).Annotations[api.AnnotationReclaimDeadline])
		}
		assert.Empty(t, w.request("train-2"), "it has ended")
		assert.Empty(t, w.request("other"))
		assert.Equal(t, []string{"warn train"}, f.calls, "once")
		assert.Equal(t, []string{"SpotReclaimNotice a", "SpotReclaimWarned train-0"}, w.seen())
		assert.Empty(t, w.gone())
	})
}

func TestAPodThatIsNotWarnedIsNotEvicted(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		var failing atomic.Bool
		failing.Store(true)
		w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, apierrors.NewInternalError(fmt.Errorf("etcd is away"))
		})
		w.cloud.reclaim("a")
		w.start()
		w.pass(10 * time.Second)
		require.Empty(t, w.gone())
		failing.Store(false)
		w.pass(slowestRetry)
		require.Equal(t, []string{"p"}, w.gone())
	})
}

func TestAPodThatCannotBeWarnedIsEvictedInTime(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("p", "a")
		w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "p", fmt.Errorf("a webhook denied it"))
		})
		w.cloud.reclaim("a")
		w.start()
		w.pass(warnPatience - time.Second)
		assert.Empty(t, w.gone(), "it may only be a bad moment")
		w.pass(time.Second + slowestRetry)
		assert.Equal(t, []string{"p"}, w.gone())
	})
}

func TestWarningsAreSentOnce(t *testing.T) {
	answers := map[string]struct {
		answer  func() error
		patches int
	}{
		"that the informer does not show yet":        {func() error { return nil }, 1},
		"and again where others write just then":     {failTimes(2, apierrors.NewConflict(corev1.Resource("pods"), "p", nil)), 3},
		"and again where the API server is too busy": {failTimes(1, apierrors.NewTimeoutError("busy", 1)), 2},
	}
	for name, tc := range answers {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addPod("p", "a")
				var patches atomic.Int32
				w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					patches.Add(1)
					return true, &corev1.Pod{}, tc.answer()
				})
				w.cloud.reclaim("a")
				w.start()
				for i := range 5 {
					w.updatePod("p", func(pod *corev1.Pod) { pod.Labels = map[string]string{"look": fmt.Sprint(i)} })
					w.pass(time.Second)
				}
				assert.EqualValues(t, tc.patches, patches.Load())
			})
		})
	}
}

// failTimes fails so many times.
func failTimes(n int32, err error) func() error {
	var calls atomic.Int32
	return func() error {
		if calls.Add(1) <= n {
			return err
		}
		return nil
	}
}

func TestNeighboursOfAReplicaAreNotWarned(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		warned      bool
	}{
		"replicas of a service":                {nil, false},
		"pods that their annotation makes one": {map[string]string{api.AnnotationJob: "mine"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addNode("b")
				for pod, node := range map[string]string{"p-0": "a", "p-1": "b"} {
					w.addPod(pod, node, func(pod *corev1.Pod) { pod.Annotations = tc.annotations })
				}
				w.addPod("holds-the-round-open", "a", awaiting, func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{api.AnnotationJob: tc.annotations[api.AnnotationJob], api.AnnotationAwaitCheckpoint: "true"}
				})
				w.cloud.reclaim("a")
				w.start(func(c *settings) { c.Jobs = oneJob{} })
				assert.NotEmpty(t, w.request("p-0"))
				assert.Equal(t, tc.warned, w.request("p-1") != "")
			})
		})
	}
}

// oneJob has all pods in one job of no known system.
type oneJob struct{ soloJobs }

func (oneJob) Member(pod *corev1.Pod) jobs.Membership {
	member := soloJobs{}.Member(pod)
	member.Name = "mine"
	return member
}

func TestNodesOfOneReclaimShareARequest(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 3)
		for _, node := range []string{"a", "b", "c"} {
			w.addNode(node)
			w.addPod("on-"+node, node, of("train", jobs.RoleWorker), awaiting)
		}
		w.cloud.reclaim("a")
		f.start()
		id, deadline := w.request("on-a"), w.pod("on-a").Annotations[api.AnnotationReclaimDeadline]

		w.cloud.reclaim("b")
		w.poll()
		assert.Equal(t, id, w.request("on-a"), "b joins the round that is open")
		assert.Equal(t, id, w.request("on-b"))
		assert.Equal(t, deadline, w.pod("on-b").Annotations[api.AnnotationReclaimDeadline], "the first deadline is the job's")
		assert.Equal(t, "i-b", w.pod("on-b").Annotations[api.AnnotationReclaimInstance])
		assert.Equal(t, []string{"warn train"}, f.calls)

		w.say("on-c")
		w.cloud.reclaim("c")
		w.protect("on-a")
		w.poll()
		assert.NotEqual(t, id, w.request("on-c"), "after the acknowledgement a handshake begins again")
	})
}

func TestSurvivorsAreWarnedEvenIfTheAcknowledgementComesBefore(t *testing.T) {
	for name, anew := range map[string]bool{"": false, "to the next leader": true} {
		t.Run(strings.TrimSpace("the acknowledgement comes "+name), func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 2)
				w.gang("train", "worker", 2, awaiting)
				var failing atomic.Bool
				failing.Store(true)
				w.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					survivor := action.(clienttesting.PatchAction).GetName() == "train-worker-1"
					return survivor && failing.Load(), nil, apierrors.NewTimeoutError("busy", 1)
				})
				w.cloud.reclaim("train-worker-0")
				f.start()
				w.say("train-worker-0")
				w.pass(time.Second)
				assert.Empty(t, f.called(), "the job is not suspended before all of it is asked")
				if anew {
					w.stop()
					f.start()
				}
				failing.Store(false)
				w.pass(slowestRetry)
				assert.Equal(t, w.request("train-worker-0"), w.request("train-worker-1"))
				assert.Equal(t, []string{"suspend train"}, f.called())
			})
		})
	}
}

func TestASuccessorThatComesAfterTheAcknowledgementIsNotWarned(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		w.addNode("a")
		w.addNode("b")
		w.addPod("on-a", "a", of("train", jobs.RoleWorker), awaiting)
		w.addPod("on-b", "b", of("train", jobs.RoleWorker), awaiting)
		w.protect("on-a")
		w.cloud.reclaim("a")
		f.start()
		require.NotEmpty(t, w.request("on-b"))

		w.addPod("before", "b", of("train", jobs.RoleWorker), awaiting)
		w.pass(time.Second)
		assert.Equal(t, w.request("on-b"), w.request("before"), "it trains along, and may have to save")
		w.say("on-a")
		w.pass(time.Second)
		w.addPod("after", "b", of("train", jobs.RoleWorker), awaiting)
		w.pass(time.Second)
		assert.Empty(t, w.request("after"))
		assert.Contains(t, w.pods(), "on-a", "the reclaim goes on")
	})
}

func TestAWarningIsTakenBack(t *testing.T) {
	unwarned := func(t *testing.T, w *world, pod string) {
		for _, key := range []string{api.AnnotationReclaimDeadline, api.AnnotationCheckpointRequest, api.AnnotationReclaimInstance} {
			assert.NotContains(t, w.pod(pod).Annotations, key)
		}
	}
	begin := func(t *testing.T, test func(w *world, f *fakeJobs)) {
		withJobs(t, func(w *world, f *fakeJobs) {
			f.add("train", 1, 2)
			w.addNode("a")
			w.addNode("b")
			w.addPod("on-a", "a", of("train", jobs.RoleWorker), awaiting)
			w.addPod("on-b", "b", of("train", jobs.RoleWorker), awaiting)
			w.cloud.reclaim("a")
			f.start()
			require.NotEmpty(t, w.request("on-b"))
			test(w, f)
		})
	}
	t.Run("when the notice is withdrawn", func(t *testing.T) {
		begin(t, func(w *world, _ *fakeJobs) {
			w.cloud.withdraw("a")
			w.pass(5 * poll.DefaultInterval)
			unwarned(t, w, "on-a")
			unwarned(t, w, "on-b")
			w.pass(notice.DefaultPeriod)
			assert.Empty(t, w.gone())
		})
	})
	t.Run("when it is withdrawn while there is no leader", func(t *testing.T) {
		begin(t, func(w *world, f *fakeJobs) {
			w.stop()
			w.cloud.withdraw("a")
			f.start()
			w.pass(5 * poll.DefaultInterval)
			unwarned(t, w, "on-a")
			unwarned(t, w, "on-b")
		})
	})
	t.Run("when one of two notices is withdrawn, only once the other has run its course", func(t *testing.T) {
		begin(t, func(w *world, _ *fakeJobs) {
			id := w.request("on-a")
			w.cloud.reclaim("b")
			w.poll()
			w.cloud.withdraw("a")
			w.pass(5 * poll.DefaultInterval)
			assert.Equal(t, id, w.request("on-a"), "the job still has something to lose")
			w.say("on-a")
			w.pass(suspendWait)
			assert.Equal(t, []string{"on-b"}, w.gone())
			unwarned(t, w, "on-a")
		})
	})
	t.Run("from the survivors, when the others are gone", func(t *testing.T) {
		begin(t, func(w *world, _ *fakeJobs) {
			w.say("on-a")
			w.pass(time.Second)
			assert.Equal(t, []string{"on-b"}, w.pods())
			unwarned(t, w, "on-b")
		})
	})
}

func TestAWarningThatSomebodyTakesOffIsPutBack(t *testing.T) {
	for name, meddle := range map[string]func(*corev1.Pod){
		"the request":     func(pod *corev1.Pod) { delete(pod.Annotations, api.AnnotationCheckpointRequest) },
		"the deadline":    func(pod *corev1.Pod) { delete(pod.Annotations, api.AnnotationReclaimDeadline) },
		"a garbled one":   noted(api.AnnotationCheckpointRequest, "mine"),
		"all annotations": func(pod *corev1.Pod) { pod.Annotations = nil; awaiting(pod) },
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 0, 1)
				w.addNode("a")
				w.addPod("p", "a", of("train", jobs.RoleWorker), awaiting)
				w.cloud.reclaim("a")
				f.start()
				before := w.pod("p").Annotations
				w.updatePod("p", meddle)
				w.pass(time.Second)
				assert.Equal(t, before, w.pod("p").Annotations)
			})
		})
	}
}
