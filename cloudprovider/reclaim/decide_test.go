package reclaim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/batchjob"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

// gang makes a Node for each of the pods "<job>-<role>-<i>", numbered from 0.
func (w *world) gang(job string, role jobs.Role, n int, change ...func(*corev1.Pod)) {
	w.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-%s-%d", job, role, i)
		w.addNode(name)
		w.addPod(name, name, append(slices.Clone(change), of(job, role))...)
	}
}

func TestAJobIsShrunkOrSuspendedByWhatSurvives(t *testing.T) {
	terminating := func(pod *corev1.Pod) {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Minute)}
	}
	for name, tc := range map[string]struct {
		least, replicas int
		setUp           func(*world)
		leaving         []string
		want            []string
	}{
		"enough survive": {
			2, 4, func(w *world) { w.gang("train", "worker", 4) },
			[]string{"train-worker-3", "train-worker-2"}, []string{"shrink train train-worker-2,train-worker-3"},
		},
		"one too few survives": {
			3, 4, func(w *world) { w.gang("train", "worker", 4) },
			[]string{"train-worker-3", "train-worker-2"}, []string{"suspend train"},
		},
		"a job that is not elastic loses one": {
			4, 4, func(w *world) { w.gang("train", "worker", 4) },
			[]string{"train-worker-0"}, []string{"suspend train"},
		},
		"those that have ended or are about to go do not survive": {
			2, 4, func(w *world) {
				w.gang("train", "worker", 2)
				w.addNode("b")
				w.addPod("ended", "b", of("train", jobs.RoleWorker), succeeded)
				w.addPod("going", "b", of("train", jobs.RoleWorker), terminating)
				w.addPod("nowhere", "", of("train", jobs.RoleWorker))
				w.addPod("lost", "no-such-node", of("train", jobs.RoleWorker))
			},
			[]string{"train-worker-0"}, []string{"suspend train"},
		},
		"the launcher is lost, and the job with it": {
			1, 4, func(w *world) { w.gang("train", "worker", 4); w.gang("train", "launcher", 1) },
			[]string{"train-launcher-0"}, []string{"suspend train"},
		},
		"a launcher is no survivor": {
			2, 2, func(w *world) { w.gang("train", "worker", 2); w.gang("train", "launcher", 1) },
			[]string{"train-worker-0"}, []string{"suspend train"},
		},
		"a host that trains is one": {
			2, 3, func(w *world) { w.gang("train", "worker", 2); w.gang("train", "host", 1) },
			[]string{"train-worker-0"}, []string{"shrink train train-worker-0"},
		},
		"a host that only hosts is none": {
			2, 2, func(w *world) { w.gang("train", "worker", 2); w.gang("train", "host", 1) },
			[]string{"train-worker-0"}, []string{"suspend train"},
		},
		"only the host is lost, and nobody is to be taken out": {
			2, 3, func(w *world) { w.gang("train", "worker", 2); w.gang("train", "host", 1) },
			[]string{"train-host-0"}, nil,
		},
		"it needs no minimum": {
			0, 1, func(w *world) { w.gang("train", "worker", 1) },
			[]string{"train-worker-0"}, []string{"shrink train train-worker-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", tc.least, tc.replicas)
				tc.setUp(w)
				w.cloud.reclaim(tc.leaving...)
				f.start()
				w.pass(suspendWait)
				assert.Equal(t, tc.want, f.called())
				gone := w.gone()
				slices.Sort(gone)
				slices.Sort(tc.leaving)
				assert.Equal(t, tc.leaving, gone, "none but the pods on reclaiming Nodes are evicted, once")
			})
		})
	}
}

func TestAJobThatNeedsItsHostsIsSuspendedBeforeItLosesOne(t *testing.T) {
	for lost, want := range map[string]string{"train-host-0": "suspend train", "train-worker-0": "shrink train train-worker-0"} {
		t.Run(lost, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 3, 6)
				f.jobs["train"].NeedsHosts = true
				w.gang("train", jobs.RoleHost, 2)
				w.gang("train", jobs.RoleWorker, 4)
				w.cloud.reclaim(lost)
				f.start()
				w.pass(time.Minute)
				assert.Equal(t, []string{want}, f.called())
			})
		})
	}
}

func TestASuspendedJobIsLeftToItsSystemFirst(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(suspendWait - 2*time.Second)
		require.Equal(t, []string{"suspend train"}, f.called())
		require.Empty(t, w.gone())
		w.pass(2 * time.Second)
		assert.Equal(t, []string{"train-worker-0"}, w.gone())
	})
}

// trackedBy is a pod of the Job, whose end the Job controller counts.
func trackedBy(job string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Finalizers = []string{batchv1.JobTrackingFinalizer}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, Controller: ptr.To(true)}}
	}
}

// createJob creates a Job that runs, whatever the job of its name does in the test.
func (w *world) createJob(name string) *batchv1.Job {
	w.Helper()
	job, err := w.client.BatchV1().Jobs(metav1.NamespaceDefault).Create(w.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(w, err)
	return job
}

// withJob is about a Job of Kubernetes of three workers that needs all of them, on Nodes of their own names, two of which are
// reclaimed.
func withJob(t *testing.T, restart corev1.RestartPolicy, test func(w *world, f *fakeJobs)) {
	t.Helper()
	withJobs(t, func(w *world, f *fakeJobs) {
		f.system = batchjob.Name
		f.add("train", 3, 3)
		for _, name := range []string{"a", "b", "staying"} {
			w.addNode(name)
			w.addPod(name, name, of("train", jobs.RoleWorker), trackedBy("train"), func(pod *corev1.Pod) { pod.Spec.RestartPolicy = restart })
		}
		w.cloud.reclaim("a", "b")
		test(w, f)
	})
}

func TestPodsOfASuspendedJobThatItsControllerDoesNotEndLeaveSoonAndUncounted(t *testing.T) {
	withJob(t, corev1.RestartPolicyNever, func(w *world, f *fakeJobs) {
		f.start()
		w.pass(trackedWait - 2*time.Second)
		require.Equal(t, []string{"suspend train"}, f.called())
		require.Empty(t, w.untracked(), "the controller may do it")
		w.pass(3 * time.Second)
		assert.ElementsMatch(t, []string{"a", "b", "staying"}, w.untracked(), "the pod that stays fails when the others leave")
		assert.ElementsMatch(t, []string{"a", "b"}, w.gone())
	})
}

func TestPodsThatStartAgainInPlaceAreLeftToTheJobControllerAsLongAsPossible(t *testing.T) {
	withJob(t, corev1.RestartPolicyOnFailure, func(w *world, f *fakeJobs) {
		f.start()
		w.pass(suspendWait - 5*time.Second)
		require.Empty(t, w.gone(), "those that stay would count by their restarts")
		w.pass(5 * time.Second)
		assert.ElementsMatch(t, []string{"a", "b"}, w.gone())
		assert.Len(t, w.untracked(), 3)
	})
}

func TestAJobThatIsNotSuspendedYetKeepsItsPods(t *testing.T) {
	withJob(t, corev1.RestartPolicyNever, func(w *world, f *fakeJobs) {
		f.start()
		w.pass(trackedWait / 2)
		f.resume("train") // or Kueue has yet to suspend it
		w.createJob("train")
		w.pass(suspendWait - trackedWait)
		assert.Empty(t, w.untracked(), "the controller would make new ones")
		assert.Empty(t, w.gone())
	})
}

func TestPodsOfASuspendedJobSetStayUntilItsJobsAreSuspendedToo(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.system = "jobset"
		f.add("train", 2, 2)
		workers := w.createJob("train-workers-0")
		for _, name := range []string{"a", "b"} {
			w.addNode(name)
			w.addPod(name, name, of("train", jobs.RoleWorker), trackedBy(workers.Name))
		}
		w.cloud.reclaim("a", "b")
		f.start()
		w.pass(suspendWait + time.Second)
		require.Equal(t, []string{"suspend train"}, f.called())
		assert.Empty(t, w.untracked(), "the controller of their Job would make new ones")
		assert.Empty(t, w.gone())
		workers.Spec.Suspend = ptr.To(true) // the JobSet controller has got to it
		_, err := w.client.BatchV1().Jobs(workers.Namespace).Update(t.Context(), workers, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.pass(6 * time.Second)
		assert.ElementsMatch(t, []string{"a", "b"}, w.untracked())
		assert.ElementsMatch(t, []string{"a", "b"}, w.gone())
	})
}

func TestAnUntrackedPodWhoseEvictionIsRefusedIsEvictedSoonAfter(t *testing.T) {
	withJob(t, corev1.RestartPolicyNever, func(w *world, f *fakeJobs) {
		w.guarded.Insert("a")
		f.start()
		w.pass(trackedWait + 5*time.Second)
		w.guarded.Delete("a")
		refused := len(w.gone())
		w.pass(10 * time.Second)
		assert.Greater(t, len(w.gone()), refused, "and not after two minutes")
	})
}

func TestPodsOfASuspendedJobThatAreDeletedForLackOfTimeAreNotCounted(t *testing.T) {
	withJob(t, corev1.RestartPolicyNever, func(w *world, f *fakeJobs) {
		f.start()
		w.pass(trackedWait / 2)
		require.Equal(t, []string{"suspend train"}, f.called())
		w.stop()
		w.pass(4*time.Minute + 20*time.Second) // nobody leads
		f.start()
		w.pass(30 * time.Second)
		assert.ElementsMatch(t, []string{"a", "b"}, w.gone())
		assert.NotContains(t, w.requests(), "create pods/eviction")
		assert.Len(t, w.untracked(), 3)
	})
}

func TestAJobThatIsShrunkByItsSystemIsLeftToItAsLongAsThereIsTime(t *testing.T) {
	for name, tc := range map[string]struct {
		scales time.Duration
		change func(f *fakeJobs)
		by     time.Duration // after the notice
	}{
		"which gives up after a while":        {95 * time.Second, nil, 100 * time.Second},
		"which never comes to it":             {time.Hour, nil, 230 * time.Second},
		"which cannot be asked any more":      {time.Hour, func(f *fakeJobs) { f.fails["shrinking"] = errors.New("away") }, 230 * time.Second},
		"until somebody has deleted the job":  {time.Hour, func(f *fakeJobs) { f.fails["shrinking"] = jobs.ErrNoObject }, 10 * time.Second},
		"which cannot be told to let it be":   {time.Hour, func(f *fakeJobs) { f.fails["cancel"] = errors.New("forbidden") }, 240 * time.Second},
		"which hangs when it is told to stop": {time.Hour, func(f *fakeJobs) { f.hangs["cancel"] = true }, 240 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.scales = tc.scales
				f.add("train", 1, 2)
				w.gang("train", "worker", 2)
				w.cloud.reclaim("train-worker-0")
				f.start()
				if tc.change != nil {
					f.mu.Lock()
					tc.change(f)
					f.mu.Unlock()
				}
				w.pass(tc.by - 11*time.Second)
				require.Empty(t, w.gone())
				w.pass(12 * time.Second)
				assert.Equal(t, []string{"train-worker-0"}, w.gone())
				assert.Equal(t, []string{"shrink train train-worker-0"}, f.called())
				assert.NotContains(t, w.requests(), "delete pods")
				if f.fails["cancel"] == nil && !f.hangs["cancel"] {
					assert.Equal(t, []string{"train-worker-0"}, f.cancelled, "its system is not left with workers that are gone")
				}
			})
		})
	}
}

func TestASystemThatFailedToShrinkIsToldToLetItBe(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		f.hangs["shrink"] = true // and may have done it
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(prepareFactor*callPatience + 2*callTimeout)
		require.Equal(t, []string{"train-worker-0"}, w.gone())
		assert.Equal(t, []string{"train-worker-0"}, f.cancelled, "before it was evicted")
	})
}

func TestNodesThatFollowAJobThatIsBeingShrunkAreDecidedOnWithout(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.scales = time.Hour
		f.add("train", 1, 3)
		w.gang("train", "worker", 3)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.cloud.reclaim("train-worker-1")
		w.poll()
		w.pass(time.Second)
		assert.Equal(t, []string{"shrink train train-worker-0", "shrink train train-worker-0,train-worker-1"}, f.called())
		w.pass(2 * time.Minute)
		require.Empty(t, w.gone())
		w.pass(2 * time.Minute)
		assert.ElementsMatch(t, []string{"train-worker-0", "train-worker-1"}, w.gone())
		assert.ElementsMatch(t, []string{"train-worker-0", "train-worker-1"}, f.cancelled, "once, and all together")
	})
}

func TestAWorkerThatFollowsAShrinkThatHasBegunIsTakenOutAfterIt(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.scales = time.Hour
		f.add("train", 1, 3)
		w.gang("train", "worker", 3)
		w.cloud.reclaim("train-worker-0")
		f.start()
		require.Equal(t, []string{"shrink train train-worker-0"}, f.called())
		f.mu.Lock()
		f.fails["shrink"] = &jobs.BusyError{With: "ScaleIn train-in"}
		f.mu.Unlock()
		w.cloud.reclaim("train-worker-1")
		w.pass(30 * time.Second)
		require.Empty(t, w.gone(), "the first is its system's to end")

		f.mu.Lock()
		delete(f.fails, "shrink")
		f.out, f.scales = nil, 0
		f.mu.Unlock()
		w.removePod("train-worker-0")
		w.pass(slowestRetry + time.Second)
		called := f.called()
		assert.Equal(t, "shrink train train-worker-1", called[len(called)-1], "asked again when it was busy no more")
		assert.Equal(t, []string{"train-worker-1"}, w.gone())
	})
}

func TestAJobIsNotLeftToItsSystemUntilItIsTooLateToEvict(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.scales = time.Hour
		f.add("train", 1, 2)
		w.gang("train", "worker", 2, awaiting)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(228 * time.Second) // the acknowledgement did not come until 220
		require.NotEmpty(t, f.called())
		require.Empty(t, w.gone())
		w.pass(2 * time.Second)
		assert.Equal(t, []string{"train-worker-0"}, w.gone(), "in time for its grace")
		assert.NotContains(t, w.requests(), "delete pods")
	})
}

func TestTheWholeJobSavesItsWorkBeforeItIsSuspended(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		w.gang("train", "worker", 2, awaiting)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(time.Minute)
		require.Empty(t, f.called())
		w.say("train-worker-1")
		w.pass(time.Second)
		require.Equal(t, []string{"suspend train"}, f.called())
		require.Empty(t, w.gone())
	})
}

func TestNothingIsAskedOfAJobThatIsSuspendedOrHasEnded(t *testing.T) {
	for name, change := range map[string]func(*jobs.Job){
		"suspended": func(job *jobs.Job) { job.Suspended = true },
		"ended":     func(job *jobs.Job) { job.Finished = true },
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 2)
				change(f.jobs["train"])
				w.gang("train", "worker", 2, awaiting)
				w.cloud.reclaim("train-worker-0")
				f.start()
				w.pass(suspendWait)
				assert.Empty(t, f.calls)
				assert.Equal(t, []string{"train-worker-0"}, w.gone())
			})
		})
	}
}

func TestOneDecisionForAllNodesOfAReclaim(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 3) // it can lose one, not two
		w.gang("train", "worker", 3)
		f.start()
		w.cloud.reclaim("train-worker-0", "train-worker-1")
		w.poll()
		w.pass(suspendWait)
		assert.Equal(t, []string{"suspend train"}, f.called())
		assert.Len(t, w.gone(), 2)
	})
}

func TestNodesThatFollowAreDecidedOnAnew(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 3)
		w.gang("train", "worker", 3)
		w.protect("train-worker-0") // so that it is still there when the other follows
		f.start()
		w.cloud.reclaim("train-worker-0")
		w.poll()
		require.Equal(t, []string{"shrink train train-worker-0"}, f.called())
		w.cloud.reclaim("train-worker-1")
		w.poll()
		w.pass(suspendWait)
		assert.Equal(t, []string{"shrink train train-worker-0", "suspend train"}, f.called())
	})
}

// A tool that keeps the job's object as it is in Git would win any fight over it.
func TestAJobThatSomebodyElseResumesIsSuspendedOnceForEachReclaim(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 3, 3)
		w.gang("train", "worker", 3)
		w.protect("train-worker-0") // so that its Node is being reclaimed for minutes
		f.start()
		w.cloud.reclaim("train-worker-0")
		w.poll()
		require.Equal(t, []string{"suspend train"}, f.called())
		for range 4 {
			f.resume("train")
			w.pass(20 * time.Second)
		}
		assert.Equal(t, []string{"suspend train"}, f.called())

		w.cloud.reclaim("train-worker-1")
		w.poll()
		w.pass(suspendWait)
		assert.Equal(t, []string{"suspend train", "suspend train"}, f.called(), "it loses another Node")
	})
}

func TestTwoDecisionsAreNotCarriedOutAtOnce(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 3)
		f.hangs["shrink"] = true
		w.gang("train", "worker", 3)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.cloud.reclaim("train-worker-1")
		w.poll()
		require.Equal(t, []string{"shrink train train-worker-0"}, f.called(), "it is still waited for")
		w.pass(callPatience + callTimeout)
		assert.Contains(t, f.called(), "suspend train")
		w.pass(suspendWait)
		assert.Len(t, w.gone(), 2)
	})
}

func TestAPodThatComesBackIsNotTalkedOver(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 3)
		w.gang("train", "worker", 3)
		w.protect("train-worker-0") // the round stays open
		w.cloud.reclaim("train-worker-0", "train-worker-1")
		f.start()
		before := f.called()
		require.Len(t, before, 1)
		for i := range 3 {
			w.pass(time.Second)
			w.addPod("returner", "train-worker-1", of("train", jobs.RoleWorker), func(pod *corev1.Pod) {
				pod.UID, pod.CreationTimestamp = types.UID(fmt.Sprint(i)), metav1.Now()
			})
			w.pass(time.Second)
			require.NotContains(t, w.pods(), "returner")
		}
		assert.Equal(t, before, f.called())
	})
}

func TestAJobSystemThatFailsDoesNotHoldUpTheDrain(t *testing.T) {
	broken := errors.New("spec.etReplicaSpecs is missing")
	never := map[string]bool{}
	for name, tc := range map[string]struct {
		fails map[string]error
		hangs map[string]bool
		by    time.Duration // after the notice
		told  bool
	}{
		"the job cannot be read":            {map[string]error{"get": broken}, never, callPatience + prepareFactor*callPatience, true},
		"reading hangs":                     {nil, map[string]bool{"get": true}, callPatience + prepareFactor*callPatience + 2*callTimeout, true},
		"warning fails":                     {map[string]error{"warn": broken}, never, callPatience + suspendWait + time.Second, false},
		"warning hangs":                     {nil, map[string]bool{"warn": true}, callPatience + callTimeout + suspendWait + time.Second, false},
		"suspending fails":                  {map[string]error{"suspend": broken}, never, prepareFactor*callPatience + time.Second, true},
		"suspending hangs":                  {nil, map[string]bool{"suspend": true}, prepareFactor*callPatience + callTimeout + time.Second, true},
		"suspending is not possible":        {map[string]error{"suspend": fmt.Errorf("Kueue does: %w", jobs.ErrUnsupported)}, never, time.Second, false},
		"the job has no object":             {map[string]error{"get": jobs.ErrNoObject}, never, time.Second, false},
		"everything fails":                  {map[string]error{"get": broken, "warn": broken, "suspend": broken}, never, callPatience + prepareFactor*callPatience, true},
		"the system answers after a while":  {nil, never, suspendWait + time.Second, false},
		"the object goes before it is told": {map[string]error{"warn": jobs.ErrNoObject}, never, suspendWait + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 2)
				f.fails, f.hangs = tc.fails, tc.hangs
				w.gang("train", "worker", 2)
				w.cloud.reclaim("train-worker-0")
				f.start()
				w.pass(tc.by - time.Second)
				assert.Equal(t, []string{"train-worker-0"}, w.gone())
				assert.NotEmpty(t, w.request("train-worker-1")+w.node("train-worker-0").Annotations[api.AnnotationReclaimDrained])
				seen := w.seen()
				told := slices.ContainsFunc(seen, func(event string) bool { return strings.HasPrefix(event, events.ReasonUnprepared) })
				assert.Equal(t, tc.told, told, "%v", seen)
			})
		})
	}
}

func TestASystemThatIsOverwhelmedIsWaitedFor(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		f.fails["suspend"] = errors.New("too many requests")
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(2 * callPatience)
		require.Empty(t, w.gone())
		f.mu.Lock()
		delete(f.fails, "suspend")
		f.mu.Unlock()
		w.pass(callPatience)
		assert.Empty(t, w.gone(), "the suspended job's pods are its system's to end")
		assert.True(t, f.suspended("train"))
		assert.NotContains(t, w.seen(), events.ReasonUnprepared+" train")
	})
}

func TestADecisionThatCannotWaitForTheWarningIsMadeOnce(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		f.takes = map[string]time.Duration{"warn": time.Second, "suspend": 3 * time.Second}
		w.gang("train", "worker", 2, awaiting)
		missed := func() float64 { return value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "missed") }
		before := missed()
		w.cloud.reclaim("train-worker-0")
		k := &killer{}
		k.set(true, 1) // the first leader marks the Node
		w.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return k.strike(), nil, apierrors.NewInternalError(errors.New("the leader is dead"))
		})
		f.start()
		w.stop()
		k.set(false, 0)
		w.seen()
		w.pass(4 * time.Minute) // nobody leads
		f.start()
		w.pass(10 * time.Second)
		assert.Equal(t, []string{"suspend train"}, f.called())
		assert.EqualValues(t, 1, missed()-before)
		unsaved := slices.DeleteFunc(w.seen(), func(event string) bool { return !strings.HasPrefix(event, events.ReasonUnsaved) })
		assert.Len(t, unsaved, 1)
	})
}

func TestAJobOfWhichTooFewWorkersSurviveByTheCountOfItsSystemIsSuspended(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		f.fails["shrink"] = fmt.Errorf("0 of 1 workers would be left: %w", jobs.ErrUnsupported)
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(time.Minute)
		assert.Equal(t, []string{"shrink train train-worker-0", "suspend train"}, f.called())
		assert.Empty(t, w.gone(), "its system ends the pods")
	})
}

func TestFailuresOfJobSystemsAreCountedAndAskedAgain(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		f.fails["suspend"] = errors.New("conflict")
		failures := func() float64 { return value(t, "gpu_spot_reclaim_job_failures_total", "fake", "decide") }
		before := failures()
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(2 * time.Second)
		f.mu.Lock()
		delete(f.fails, "suspend")
		f.mu.Unlock()
		w.pass(10 * time.Second)
		require.True(t, f.jobs["train"].Suspended)
		assert.Equal(t, float64(len(f.called())-1), failures()-before)
		assert.Less(t, len(f.called()), 10)
	})
}

func TestManyJobsOfASystemThatHangsAreDrainedAtTheSameTime(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		const n = 40 // more than there are workers
		f.hangs["get"] = true
		w.addNode("a")
		for i := range n {
			w.addPod(fmt.Sprint("p-", i), "a", of(fmt.Sprint("job-", i), jobs.RoleWorker))
		}
		w.cloud.reclaim("a")
		f.start()
		w.pass(callPatience + prepareFactor*callPatience + 2*callTimeout)
		assert.Len(t, w.gone(), n)
	})
}

func TestNothingIsEvictedBeforeItsReplacementIsOnItsWay(t *testing.T) {
	for name, change := range map[string]func(*settings){
		"and then at once":             nil,
		"but no longer than is set":    func(c *settings) { c.ReplaceWait = 7 * time.Second },
		"nor than is usual, otherwise": func(c *settings) {},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				var replaced atomic.Bool
				f.add("train", 1, 2)
				w.gang("train", "worker", 2)
				w.cloud.reclaim("train-worker-0")
				wait := handshake.DefaultReplaceWait
				f.start(func(c *settings) {
					c.Replaced = func(node string) bool { return replaced.Load() && node == "train-worker-0" }
					if change != nil {
						change(c)
						wait = max(c.ReplaceWait, 0)
						if wait == 0 {
							wait = handshake.DefaultReplaceWait
						}
					}
				})
				w.pass(wait - 3*time.Second)
				require.Empty(t, w.gone())
				require.Empty(t, f.called(), "it is not shrunk either")
				replaced.Store(change == nil)
				w.pass(time.Second)
				if change == nil {
					require.Len(t, w.gone(), 1)
					return
				}
				require.Empty(t, w.gone())
				w.pass(2 * time.Second)
				assert.Len(t, w.gone(), 1)
			})
		})
	}
}

func TestAReplacementFoundForANoticeThatWasWithdrawnDoesNotCountForTheNext(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		var replaced, markable atomic.Bool
		replaced.Store(true)
		f.add("train", 0, 2)
		w.gang("train", "worker", 2, awaiting)
		w.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			isOne := action.(clienttesting.PatchAction).GetName() == "train-worker-1"
			return isOne && !markable.Load(), nil, errors.New("the API server is busy")
		})
		w.cloud.reclaim("train-worker-0", "train-worker-1")
		f.start(func(c *settings) {
			c.Replaced, c.ReplaceWait = func(string) bool { return replaced.Load() }, 2*time.Minute
		})
		w.pass(15 * time.Second)
		require.False(t, cluster.IsMarked(w.node("train-worker-1")))
		require.Equal(t, w.request("train-worker-0"), w.request("train-worker-1"), "it is asked though its Node is not marked")
		w.cloud.withdraw("train-worker-1")
		w.pass(15 * time.Second)
		require.Equal(t, sets.New("i-train-worker-0"), w.notices.Reclaiming())
		replaced.Store(false)
		markable.Store(true)
		w.cloud.reclaim("train-worker-1")
		w.pass(5 * time.Second)
		require.True(t, cluster.IsMarked(w.node("train-worker-1")))
		w.say("train-worker-0")
		w.pass(15 * time.Second)
		require.Empty(t, w.gone(), "there is no place for what is on the second Node")
		replaced.Store(true)
		w.pass(2 * time.Second)
		assert.Len(t, w.gone(), 2)
	})
}

func TestANodeWhoseNoticeComesAgainAfterTheDecisionIsDecidedOn(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 3)
		w.gang("train", "worker", 3)
		w.protect("train-worker-0")
		w.cloud.reclaim("train-worker-0", "train-worker-1")
		f.start(func(c *settings) { c.Replaced = func(string) bool { return false } })
		w.pass(5 * time.Second)
		w.cloud.withdraw("train-worker-1")
		w.pass(40 * time.Second)
		require.Equal(t, []string{"shrink train train-worker-0"}, f.called())
		w.cloud.reclaim("train-worker-1")
		w.pass(time.Minute)
		assert.Equal(t, []string{"shrink train train-worker-0", "shrink train train-worker-0,train-worker-1"}, f.called())
		assert.Equal(t, []string{"train-worker-0", "train-worker-2"}, w.pods())
	})
}

func TestAShrinkThatTheSystemHasNotBegunIsTakenBackWhenItsWorkersAreGoneOrStay(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"the instance is released": func(w *world) { w.cloud.release("train-worker-0") },
		"the notice is withdrawn":  func(w *world) { w.cloud.withdraw("train-worker-0") },
		"and another Node is to go": func(w *world) {
			w.cloud.release("train-worker-0")
			w.pass(poll.DefaultInterval / busyFactor) // it takes two polls
			w.cloud.reclaim("train-worker-1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 1, 3)
				f.scales = time.Hour
				w.gang("train", "worker", 3)
				w.cloud.reclaim("train-worker-0")
				f.start()
				w.pass(5 * time.Second)
				require.Equal(t, []string{"shrink train train-worker-0"}, f.called())
				end(w)
				w.pass(agreeingPolls*poll.DefaultInterval + 2*time.Second)
				f.mu.Lock()
				defer f.mu.Unlock()
				assert.Contains(t, f.cancelRequested, "train-worker-0")
				assert.NotContains(t, f.cancelRequested, "train-worker-1")
			})
		})
	}
}

func TestAJobWhoseNoticesAreWithdrawnAsItIsDecidedOnIsLeftAsItIs(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 2, 2)
		f.fails["get"] = errors.New("away")
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-worker-0")
		f.start(atOnce)
		w.pass(callPatience + 2*time.Second)
		w.cloud.withdraw("train-worker-0")
		w.pass(agreeingPolls * poll.DefaultInterval)
		f.mu.Lock()
		f.jobs["train"].Min = 3 // as if one of the others was missing
		delete(f.fails, "get")
		f.mu.Unlock()
		w.pass(callPatience)
		assert.Empty(t, f.called())
	})
}
