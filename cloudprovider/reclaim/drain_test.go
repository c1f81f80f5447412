package reclaim

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

func TestAReclaimingNodeIsEmptiedOfWhatCanMove(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addNode("b")
		w.addPod("worker", "a")
		w.addPod("elsewhere", "b")
		w.addPod("driver", "a", ownedByDaemonSet)
		w.addPod("proxy", "a", mirror)
		w.addPod("done", "a", succeeded)
		w.cloud.reclaim("a")
		w.start()

		assert.Equal(t, []string{"done", "driver", "elsewhere", "proxy"}, w.pods())
		assert.Equal(t, []string{"SpotReclaimDrained a", "SpotReclaimEvicted worker", "SpotReclaimNotice a"}, w.seen())
	})
}

func TestANodeIsOccupiedByPodsThatCouldMove(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, node := range []string{"empty", "daemons", "done", "busy"} {
			w.addNode(node)
		}
		w.addPod("driver", "daemons", ownedByDaemonSet)
		w.addPod("proxy", "daemons", mirror)
		w.addPod("done", "done", succeeded)
		w.addPod("worker", "busy")
		w.start()

		for node, want := range map[string]bool{"empty": false, "daemons": false, "done": false, "busy": true} {
			assert.Equal(t, want, w.cluster.Occupied(w.node(node)), node)
		}
	})
}

func TestAPodThatComesBackIsEvictedAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.seen()
		w.addPod("tolerates-everything", "a")
		w.pass(time.Second)
		assert.Empty(t, w.pods())
		assert.Equal(t, []string{"SpotReclaimEvicted tolerates-everything"}, w.seen())
	})
}

func TestAPDBIsRespectedUntilTheLastMinute(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.addPod("free", "a")
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start() // one second after the notice
		require.Equal(t, []string{"guarded"}, w.pods())

		w.pass(4*time.Minute - 2*time.Second)
		require.Equal(t, []string{"guarded"}, w.pods(), "a second before the last minute")
		asked := len(w.requests())
		assert.Less(t, asked, 50, "a PDB that refuses is not hammered")

		w.seen()
		w.pass(2 * time.Second)
		assert.Empty(t, w.pods())
		assert.Equal(t, []string{"SpotReclaimDeleted guarded", "SpotReclaimDrained a"}, w.seen())
	})
}

func TestAPDBThatYieldsIsAskedAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start()
		w.pass(time.Minute)
		require.Equal(t, []string{"guarded"}, w.pods())

		w.mu.Lock()
		w.guarded.Delete("guarded")
		w.mu.Unlock()
		w.pass(slowestRetry)
		assert.Empty(t, w.pods())
	})
}

func TestAnAnswerThatMayChangeIsWaitedFor(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, answer := range map[string]error{
		"a PDB refuses":                 apierrors.NewTooManyRequests("disruption budget", 10),
		"the pod is under two PDBs":     apierrors.NewInternalError(errors.New("more than one PodDisruptionBudget")),
		"many are evicted at once":      apierrors.NewTimeoutError("couldn't update PodDisruptionBudget", 10),
		"the pod has changed meanwhile": apierrors.NewConflict(pods, "p", nil),
		"the answer makes no sense":     apierrors.NewForbidden(pods, "p", nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var answers atomic.Int32
				w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					failing := action.GetSubresource() == "eviction" && answers.Add(1) <= 3
					return failing, nil, answer
				})
				w.addNode("a")
				w.addPod("p", "a")
				w.cloud.reclaim("a")
				w.start()
				assert.Empty(t, w.pods())
				assert.EqualValues(t, 4, answers.Load())
			})
		})
	}
}

func TestDeletionStartsInTimeForTheNotice(t *testing.T) {
	noticed := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct{ notice, from time.Duration }{
		"five minutes: the last one":        {5 * time.Minute, 4 * time.Minute},
		"an hour: the last minute":          {time.Hour, 59 * time.Minute},
		"a minute: its last fifth":          {time.Minute, 48 * time.Second},
		"deadline over when heard: at once": {-time.Minute, -time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			n := notice.Notice{FirstSeen: noticed, Deadline: noticed.Add(tc.notice)}
			assert.Equal(t, noticed.Add(tc.from), n.DeleteFrom())
		})
	}
}

func TestGraceIsCappedAtWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		own, noticed time.Duration // noticed: how long before the pod is evicted
		want         int64
	}{
		"short grace is kept":            {30 * time.Second, time.Minute, 30},
		"long grace is cut":              {time.Hour, 2 * time.Minute, 180},
		"never zero, even past its time": {time.Hour, 10 * time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.cloud.reclaim("a")
				w.start(func(c *settings) { c.PollInterval = time.Hour })
				w.pass(tc.noticed - time.Second)
				w.addPod("p", "a", grace(tc.own))
				w.pass(0)
				assert.Equal(t, []int64{tc.want}, w.graces())
			})
		})
	}
}

func TestAPodThatDoesNotEndAfterTheDeadlineIsNotDeletedAgainAndAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		deletions := 0
		w.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			deletions++
			go w.updatePod(action.(clienttesting.DeleteAction).GetName(), func(pod *corev1.Pod) { // its kubelet is gone
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(time.Second))), ptr.To[int64](1)
			})
			return true, nil, nil
		})
		w.addNode("a")
		w.cloud.reclaim("a")
		w.start()
		w.pass(5*time.Minute + 30*time.Second)
		w.addPod("p", "a")
		w.pass(5 * time.Minute)
		assert.Equal(t, 1, deletions)
	})
}

// graces are those of the evictions and deletions of pods so far, in seconds.
func (w *world) graces() []int64 {
	var graces []int64
	for _, action := range w.client.Actions() {
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			if eviction, ok := action.Object.(*policyv1.Eviction); ok {
				graces = append(graces, *eviction.DeleteOptions.GracePeriodSeconds)
			}
		case clienttesting.DeleteActionImpl:
			if action.Resource.Resource == "pods" {
				graces = append(graces, *action.DeleteOptions.GracePeriodSeconds)
			}
		}
	}
	return graces
}

func TestAPodWithAPDBDoesNotHoldUpTheOthers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start()
		w.pass(time.Minute) // by now it is asked every ten seconds
		for i := range 20 {
			w.client.ClearActions()
			w.addPod(fmt.Sprint("late-", i), "a")
			w.pass(time.Second)
			require.Contains(t, w.gone(), fmt.Sprint("late-", i))
			require.LessOrEqual(t, len(w.gone()), 2, "nor is the PDB asked more often for it")
		}
	})
}

func TestAPodThatWouldTakeTooLongIsHurried(t *testing.T) {
	for name, tc := range map[string]struct {
		takes   time.Duration // from the notice
		hurried bool
	}{
		"beyond the deadline":          {time.Hour, true},
		"it will be gone in good time": {4*time.Minute + 30*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addPod("p", "a", grace(time.Hour), func(pod *corev1.Pod) {
					pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(tc.takes)}
					pod.Finalizers = []string{"keep"}
				})
				w.cloud.reclaim("a")
				w.start()
				w.pass(4*time.Minute - 2*time.Second)
				require.Empty(t, w.gone(), "it is left to go")
				w.pass(5 * time.Second)
				if !tc.hurried {
					assert.Empty(t, w.gone())
					return
				}
				require.NotEmpty(t, w.gone())
				assert.InDelta(t, 60, w.graces()[0], 2)
			})
		})
	}
}

func TestALeaderThatComesLateHearsTheJobsOutAllTheSame(t *testing.T) {
	for name, tc := range map[string]struct {
		left    time.Duration
		decided bool
	}{
		"a minute is enough to suspend a job": {50 * time.Second, true},
		"seconds are not":                     {10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 2)
				w.gang("train", "worker", 2)
				w.cloud.reclaim("train-worker-0")
				f.start(func(c *settings) { c.Replaced = func(string) bool { return false } })
				require.Empty(t, f.called())
				w.stop()
				w.pass(notice.DefaultPeriod - tc.left - time.Second)
				w.client.ClearActions()

				f.start()
				require.Equal(t, !tc.decided, len(w.gone()) > 0)
				w.pass(10 * time.Second)
				assert.Equal(t, []string{"train-worker-0"}, w.gone())
				if tc.decided {
					assert.Equal(t, []string{"suspend train"}, f.called())
				}
			})
		})
	}
}

func TestADeadlineThatIsOverLeavesNoTimeToTalk(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		w.addNode("a", func(node *corev1.Node) {
			node.Annotations = map[string]string{api.AnnotationReclaimDeadline: time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)}
		})
		w.cloud.reclaim("a")
		w.addPod("p", "a", of("train", jobs.RoleWorker), awaiting)
		f.start()
		assert.Equal(t, []string{"p"}, w.gone())
		assert.Contains(t, w.requests(), "delete pods")
	})
}

func TestWhatHadToBeDeletedIsCountedByTheNextLeader(t *testing.T) {
	for outcome, changeLeader := range map[string]func(*world){
		"deleted": func(*world) {},
		"deleted, under another leader": func(w *world) {
			w.stop()
			w.start()
		},
	} {
		t.Run(outcome, func(t *testing.T) {
			inBubble(t, func(w *world) {
				counter := func() float64 { return value(t, "gpu_spot_reclaims_total", sourcePoll, mark.OutcomeDeleted) }
				before := counter()
				w.addNode("a")
				w.addPod("guarded", "a")
				w.protect("guarded")
				w.cloud.reclaim("a")
				w.start()
				w.pass(4*time.Minute + time.Second)
				require.Empty(t, w.pods())
				changeLeader(w)
				w.cloud.release("a")
				w.pass(5 * poll.DefaultInterval)
				require.Nil(t, w.node("a"))
				assert.Equal(t, before+1, counter())
			})
		})
	}
}

func TestPodsOfAReleasedInstanceDoNotWaitForTheGarbageCollector(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addPod("guarded", "a")
		w.addPod("driver", "a", ownedByDaemonSet)
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start()
		w.cloud.release("a")
		w.pass(5 * poll.DefaultInterval)
		require.Nil(t, w.node("a"))
		assert.Equal(t, []string{"driver"}, w.pods())
		graces := w.graces()
		assert.EqualValues(t, 0, graces[len(graces)-1], "its containers are gone")
	})
}
