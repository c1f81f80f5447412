package supervisor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

func TestJobIsSuspendedWhenItsMaximumWaitIsOver(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.job("train", waiting(10*time.Minute))
		w.pod("train", "worker-0", "")
		w.pass(2 * time.Minute)
		w.pod("train", "worker-1", "")
		w.pass(8*time.Minute - time.Second)
		assert.False(t, w.abandoned("worker-0"))
		assert.Empty(t, w.systems.done())
		w.pass(time.Second)
		assert.True(t, w.abandoned("worker-0"), "the wait began with the first pod")
		assert.True(t, w.abandoned("worker-1"))
		assert.Equal(t, []string{"suspend train max-wait"}, w.systems.done())

		w.delete("worker-0", "worker-1")
		w.pass(recheckEvery)
		w.pod("train", "again-0", "")
		assert.False(t, w.abandoned("again-0"), "its owner has resumed it: the wait begins anew")
		w.pass(10 * time.Minute)
		assert.Equal(t, []string{"suspend train max-wait"}, w.systems.done())
	})
}

func TestPodsThatComeRightAfterTheEndOfAWaitAreNotOfThatWait(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.job("train", waiting(time.Minute))
		w.pod("train", "worker-0", "")
		w.pass(time.Minute)
		require.True(t, w.abandoned("worker-0"))
		w.pass(2 * time.Second)
		w.pod("train", "again-0", "")
		assert.False(t, w.abandoned("again-0"))
	})
}

func TestWhoseWaitIsNotOver(t *testing.T) {
	for name, test := range map[string]struct {
		job    []func(*jobs.Job)
		change func(w *world)
		// abandoned and done are so after an hour.
		abandoned bool
		done      []string
	}{
		"a job that may wait for ever": {},
		"one that has its pods": {job: []func(*jobs.Job){waiting(time.Minute)}, change: func(w *world) {
			w.delete("worker-0")
			w.pod("train", "worker-0", "node")
		}},
		"one whose owner was more patient meanwhile": {job: []func(*jobs.Job){waiting(time.Minute)}, change: func(w *world) {
			w.job("train", waiting(2*time.Hour))
		}},
		"one that runs with its minimum, but nothing is bought for the rest": {
			job: []func(*jobs.Job){waiting(time.Minute), elastic(2)},
			change: func(w *world) {
				w.pod("train", "worker-1", "node")
				w.pod("train", "worker-2", "node")
			},
			abandoned: true,
		},
		"one below its minimum is": {
			job:       []func(*jobs.Job){waiting(time.Minute), elastic(2)},
			change:    func(w *world) { w.pod("train", "worker-1", "node") },
			abandoned: true, done: []string{"suspend train max-wait"},
		},
		"a launcher does not make it run": {
			job: []func(*jobs.Job){waiting(time.Minute), elastic(1)},
			change: func(w *world) {
				w.pod("train", "launcher", "node", func(pod *corev1.Pod) { pod.Labels["role"] = string(jobs.RoleLauncher) })
			},
			abandoned: true, done: []string{"suspend train max-wait"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.job("train", test.job...)
				w.pod("train", "worker-0", "")
				if test.change != nil {
					test.change(w)
				}
				w.pass(time.Hour)
				assert.Equal(t, test.abandoned, w.abandoned("worker-0"))
				done := w.systems.done()
				if len(done) > 0 {
					done = done[:1] // it is made sure of as long as pods are left
				}
				assert.Equal(t, test.done, done)
			})
		})
	}
}

func TestMaximumWaitOfPodsWithoutAJob(t *testing.T) {
	for key, value := range map[string]string{api.AnnotationMaxWait: "10m", api.AnnotationSupervisorMaxWait: "600"} {
		t.Run(key, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.node("node")
				w.pod("", "pod", "", func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} })
				w.pass(10*time.Minute - time.Second)
				assert.False(t, w.abandoned("pod"))
				w.pass(time.Minute)
				assert.True(t, w.abandoned("pod"))
				assert.Equal(t, []string{"SpotJobTimedOut pod"}, w.events.said, "once")
				assert.Empty(t, w.cordoned(), "a pod that cannot be suspended may still come to its node")
			})
		})
	}
}

func TestNewLeaderKnowsWhoseWaitIsOver(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.job("train", waiting(10*time.Minute))
		w.job("patient")
		w.pod("train", "worker-0", "")
		w.pod("patient", "other-0", "")
		w.pass(5 * time.Minute)
		w.stop()
		w.pass(6 * time.Minute)
		w.start()
		assert.True(t, w.abandoned("worker-0"))
		assert.False(t, w.abandoned("other-0"))
		assert.Equal(t, []string{"suspend train max-wait"}, w.systems.done())
	})
}

func TestNewLeaderJudgesThePodsThatItFindsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		abandoned time.Duration
	}{
		"nothing is bought before it has read their jobs": {nil, 0},
		"but not for long where those cannot be read":     {errors.New("no"), unjudgedTime},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.job("train", waiting(time.Hour))
				w.pod("train", "worker-0", "")
				w.pass(time.Millisecond) // the fake cluster does not cut times to the second
				w.systems.unread = test.err
				w.start()
				assert.Equal(t, test.abandoned > 0, w.abandoned("worker-0"))
				w.pod("train", "worker-1", "")
				assert.False(t, w.abandoned("worker-1"))
				w.pass(test.abandoned)
				assert.False(t, w.abandoned("worker-0"))
			})
		})
	}
}

func TestSuspensionIsTriedUntilItWorks(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.systems.err = errors.New("the API server is away")
		w.job("train", waiting(time.Minute))
		w.pod("train", "worker-0", "")
		w.pass(time.Minute + 10*time.Second)
		assert.Greater(t, len(w.systems.done()), 2)
		assert.True(t, w.abandoned("worker-0"), "nothing is bought for it meanwhile")
	})
}

func TestWhatWasBoughtForAJobGoesBack(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.node("old")
		w.pass(time.Minute)
		w.job("train", waiting(10*time.Minute), elastic(8))
		w.systems.suspends = func(string) { // its pods take a while to end
			for _, name := range []string{"on-old", "on-new", "on-shared"} {
				pod, err := w.client.CoreV1().Pods("ml").Get(w.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				pod.DeletionTimestamp = ptr.To(metav1.Now())
				_, err = w.client.CoreV1().Pods("ml").Update(w.Context(), pod, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			w.systems.suspends = nil
		}
		w.pod("train", "pending", "")
		w.pass(time.Minute)
		for _, name := range []string{"new", "shared", "foreign", "empty"} {
			w.node(name)
		}
		w.node("reclaimed", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
		w.node("by-hand", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		w.node("of-another-kind", func(node *corev1.Node) { node.Status.Allocatable = nil })
		w.pod("train", "on-old", "old")
		w.pod("train", "on-new", "new")
		w.pod("train", "on-shared", "shared")
		w.pod("train", "on-foreign", "foreign")
		w.pod("train", "on-reclaimed", "reclaimed")
		w.pod("", "neighbour", "shared")
		w.pod("", "agent", "new", func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
		})
		w.pass(9 * time.Minute)
		require.Equal(t, []string{"suspend train max-wait"}, w.systems.done()[:1])
		assert.ElementsMatch(t, []string{"new", "empty", "by-hand"}, w.cordoned(), "nobody comes to what goes back")
		assert.Equal(t, []string{"empty"}, w.pools.released)
		w.delete("on-old", "on-new", "on-shared", "on-foreign", "on-reclaimed", "pending")
		w.pass(2 * time.Second)
		assert.Equal(t, []string{"empty", "new"}, w.pools.released)
	})
}

func TestWhatWasBoughtForPodsOfAnotherNameGoesBack(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		released []string
		said     string
	}{
		"where the job can be suspended": {nil, []string{"node"}, "SpotNodeGivenBack node"},
		"and it is told where it cannot": {jobs.ErrUnsupported, nil, "SpotJobTimedOut train"},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.systems.err = test.err
				w.job("train", waiting(time.Minute), madeOf("train-cluster"))
				w.pod("train-cluster", "pending", "")
				w.node("node")
				w.pod("train-cluster", "worker", "node")
				w.pass(time.Minute)
				require.Equal(t, []string{"suspend train max-wait"}, w.systems.done()[:1])
				w.delete("pending", "worker")
				w.pass(2 * time.Second)
				assert.Equal(t, test.released, w.pools.released)
				assert.Equal(t, []string{test.said}, w.events.said)
			})
		})
	}
}

func TestEmptyNodesStayWhereTheyMayBeOthers(t *testing.T) {
	for name, others := range map[string]func(w *world){
		"a job that waits": func(w *world) {
			w.job("other")
			w.pod("other", "other-0", "")
		},
		"a job that is to come back": func(w *world) { w.job("other", held(jobs.HeldSuspended, jobs.ReasonReclaim)) },
		"pods whose node is reclaimed": func(w *world) {
			w.node("reclaimed", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
			w.pod("other", "other-0", "reclaimed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.job("train", waiting(time.Minute))
				w.pod("train", "worker-0", "")
				w.node("empty")
				others(w)
				w.pass(2 * time.Minute)
				assert.Contains(t, w.systems.done(), "suspend train max-wait")
				assert.Empty(t, w.cordoned())
			})
		})
	}
}

func TestWhatComesTooLateForAJobGoesBack(t *testing.T) {
	for name, test := range map[string]struct {
		after    time.Duration
		change   func(w *world)
		released []string
	}{
		"a node that was under way when the wait ended":    {after: time.Minute, released: []string{"late"}},
		"but not one that came when nobody expects it":     {after: lateTime + recheckEvery},
		"nor one that the job runs on by now":              {time.Minute, func(w *world) { w.pod("train", "again-0", "late") }, nil},
		"nor where the owner of the job lets it try again": {time.Minute, func(w *world) { w.pod("train", "again-0", "") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.job("train", waiting(time.Minute))
				w.pod("train", "worker-0", "")
				w.pass(time.Minute)
				require.Equal(t, []string{"suspend train max-wait"}, w.systems.done())
				w.delete("worker-0")
				w.pass(test.after)
				if test.change != nil {
					test.change(w)
				}
				w.node("late")
				w.pass(recheckEvery)
				assert.Equal(t, test.released, w.pools.released)
				if test.released == nil {
					assert.Empty(t, w.cordoned())
				}
			})
		})
	}
}

// vacating has a node go back that still holds a pod of its job.
func vacating(w *world) {
	w.start()
	w.job("train", waiting(time.Minute))
	w.pod("train", "pending", "")
	w.node("node")
	w.pod("train", "worker", "node")
	w.pass(time.Minute)
	w.delete("pending")
	require.Equal(w, []string{"node"}, w.cordoned())
}

func TestNodesThatAreNotGivenBackAfterAll(t *testing.T) {
	for name, test := range map[string]func(w *world){
		"somebody else has come":       func(w *world) { w.pod("", "guest", "node") },
		"its pods do not leave":        func(w *world) { w.pass(vacateTime) },
		"its pool is at its minimum":   func(w *world) { w.pools.minimum = true; w.delete("worker") },
		"also where the leader is new": func(w *world) { w.stop(); w.pod("", "guest", "node"); w.start() },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				vacating(w)
				test(w)
				w.pass(2 * time.Second)
				assert.Empty(t, w.cordoned())
				assert.Empty(t, w.pools.released)
			})
		})
	}
}

func TestNewLeaderGivesBackWhatTheOldOneMarked(t *testing.T) {
	story(t, func(w *world) {
		vacating(w)
		w.stop()
		w.delete("worker")
		w.start()
		assert.Equal(t, []string{"node"}, w.pools.released)
		assert.Contains(t, w.events.said, "SpotNodeGivenBack node")
	})
}

func TestNodeThatIsReclaimedBeforeItGoesBackIsLeftToTheReclaim(t *testing.T) {
	story(t, func(w *world) {
		vacating(w)
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		require.NoError(t, err)
		node.Labels = map[string]string{api.LabelReclaiming: "true"}
		_, err = w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.delete("worker")
		w.pass(10 * time.Second)
		assert.Equal(t, []string{"node"}, w.cordoned())
		assert.Empty(t, w.pools.released)
	})
}

func TestNodesThatCannotBeMarkedDoNotHoldUpTheRest(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		times    int
		released []string
	}{
		"one that has changed meanwhile is tried again":   {apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node", nil), 2, []string{"node"}},
		"one that is not ours to change is left as it is": {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node", nil), 1000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					test.times--
					return test.times >= 0, nil, test.err
				})
				w.job("train", waiting(time.Minute))
				w.pod("train", "worker-0", "")
				w.node("node")
				w.pass(2 * time.Minute)
				assert.Contains(t, w.systems.done(), "suspend train max-wait")
				assert.Equal(t, test.released, w.pools.released)
			})
		})
	}
}

func TestJobsThatWaitAreReadSlowly(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		for i := range 200 {
			name := fmt.Sprintf("train-%d", i)
			w.job(name, waiting(time.Hour))
			w.pod(name, name, "")
		}
		w.pass(freshTime - time.Second)
		assert.Zero(t, w.systems.read(), "most jobs have their pods by then")
		w.pass(3 * time.Second)
		assert.LessOrEqual(t, w.systems.read(), 4*readQPS)
		w.pass(time.Minute)
		assert.Equal(t, 200, w.systems.read())
	})
}
