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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// waiting is a job of one worker whose replacement is bought at once, and ready when the test says so.
type waiting struct {
	*world
	fake  *fakeJobs
	ready atomic.Bool
	// podsPerSecond is how many pods can be dealt with, without a bound if it is zero.
	podsPerSecond float64
}

// untilReady reclaims the Node of the job, 300 s ahead of its release, and has the pods wait for their replacement to be ready.
func untilReady(t *testing.T, test func(w *waiting), change ...func(*corev1.Pod)) {
	t.Helper()
	untilReadyAtRate(t, 0, test, change...)
}

// untilReadyAtRate is untilReady where so many pods can be dealt with in a second.
func untilReadyAtRate(t *testing.T, podsPerSecond float64, test func(w *waiting), change ...func(*corev1.Pod)) {
	t.Helper()
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 0, 1)
		w.addNode("a")
		w.addPod("p", "a", append([]func(*corev1.Pod){of("train", jobs.RoleWorker), awaiting, restartedAlways}, change...)...)
		w.cloud.reclaim("a")
		run := &waiting{world: w, fake: f, podsPerSecond: podsPerSecond}
		run.lead()
		test(run)
	})
}

func (w *waiting) lead() {
	w.fake.start(func(c *settings) {
		c.ReplacementReady, c.PodsPerSecond = func(string) bool { return w.ready.Load() }, w.podsPerSecond
	})
}

func restartedAlways(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }

// at goes to so long after the notice.
func (w *waiting) at(since time.Duration) {
	n, ok := w.notices.Of(w.node("a"))
	require.True(w, ok)
	w.pass(time.Until(n.FirstSeen.Add(since)))
}

func TestTheJobTrainsUntilItsReplacementIsReadyAndSavesThatToo(t *testing.T) {
	untilReady(t, func(w *waiting) {
		first := w.request("p")
		w.at(5 * time.Second)
		w.say("p")
		w.at(100 * time.Second)
		require.Empty(t, w.gone(), "its replacement is bought, but not ready")
		require.Equal(t, first, w.request("p"), "it was asked once")

		w.ready.Store(true)
		w.pass(time.Second)
		last := w.request("p")
		require.NotEqual(t, first, last, "it is asked for what it trained since")
		require.Empty(t, w.gone())
		w.pass(20 * time.Second)
		require.Empty(t, w.gone(), "its acknowledgement is awaited")
		w.say("p")
		w.pass(time.Second)
		assert.Equal(t, []string{"p"}, w.gone())
	})
}

func TestTheLastCheckpointIsAskedForInTimeIfTheReplacementIsLate(t *testing.T) {
	for name, tc := range map[string]struct {
		saving, grace, asked, gone time.Duration
	}{
		"a minute and a half ahead":       {5 * time.Second, 30 * time.Second, 210 * time.Second, 220 * time.Second},
		"earlier if saving takes long":    {30 * time.Second, 30 * time.Second, 160 * time.Second, 220 * time.Second},
		"earlier if pods need long to go": {5 * time.Second, 100 * time.Second, 170 * time.Second, 180 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			untilReady(t, func(w *waiting) {
				first := w.request("p")
				w.at(tc.saving)
				w.say("p")
				w.at(tc.asked - time.Second)
				require.Equal(t, first, w.request("p"))
				w.at(tc.asked + time.Second)
				require.NotEqual(t, first, w.request("p"))
				w.at(tc.gone - time.Second)
				require.Empty(t, w.gone(), "the acknowledgement is awaited")
				w.at(tc.gone + time.Second)
				assert.Equal(t, []string{"p"}, w.gone(), "it is not awaited for longer")
				assert.Contains(t, w.requests(), "create pods/eviction")
			}, grace(tc.grace))
		})
	}
}

func TestTheLastCheckpointIsAskedForEarlierTheMorePodsThereAre(t *testing.T) {
	const fortySecondsForAPod = 1. / 40
	untilReadyAtRate(t, fortySecondsForAPod, func(w *waiting) {
		first := w.request("p")
		w.at(5 * time.Second)
		w.say("p")
		w.at(169 * time.Second)
		require.Equal(t, first, w.request("p"))
		require.Empty(t, w.gone())
		w.at(171 * time.Second)
		assert.NotEqual(t, first, w.request("p"))
	})
}

func TestJobsDoNotWaitUntilTheirNodesAreReadyInAReclaimOfMorePodsThanCanLeaveThen(t *testing.T) {
	const aHundredSecondsForAPod = 1. / 100
	untilReadyAtRate(t, aHundredSecondsForAPod, func(w *waiting) {
		w.at(20 * time.Second)
		require.Empty(t, w.gone(), "its work is not saved yet")
		w.say("p")
		w.pass(2 * time.Second)
		assert.Equal(t, []string{"p"}, w.gone(), "its replacement is bought, and it is not asked again")
	})
}

// TestJobsWaitUntilTheirNodesAreReadyWhateverElseHappens has three other Nodes with a pod each, of which not all could leave in time. One can.
func TestJobsWaitUntilTheirNodesAreReadyWhateverElseHappens(t *testing.T) {
	const fortySecondsForAPod = 1. / 40
	others := []string{"x", "y", "z"}
	for name, before := range map[string]func(w *world){
		"a bigger reclaim is over": func(w *world) {
			w.cloud.reclaim(others...)
			w.pass(40 * time.Second)
			require.ElementsMatch(w, others, w.gone(), "they do not wait")
		},
		"a drill evicts nobody": func(w *world) {
			for _, other := range others {
				w.updatePod(other, awaiting)
			}
			w.startDrill(notice.UntilCheckpoint, others...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 0, 1)
				w.addNode("a")
				w.addPod("p", "a", of("train", jobs.RoleWorker), awaiting, restartedAlways)
				for _, other := range others {
					w.addNode(other)
					w.addPod(other, other)
				}
				run := &waiting{world: w, fake: f, podsPerSecond: fortySecondsForAPod}
				run.lead()
				before(w)
				w.cloud.reclaim("a")
				w.pass(5 * time.Second)
				first := w.request("p")
				w.say("p")
				w.pass(20 * time.Second)
				require.Contains(t, w.pods(), "p", "its replacement is not ready")
				run.ready.Store(true)
				w.pass(time.Second)
				assert.NotEqual(t, first, w.request("p"), "it is asked for what it trained since")
			})
		})
	}
}

func TestNoLastCheckpointIsAskedForWhereItWouldSaveNothing(t *testing.T) {
	ended := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()},
		}}}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		play   func(w *waiting)
	}{
		"the job has saved its work just now": {nil, func(w *waiting) {
			w.at(50 * time.Second)
			w.ready.Store(true)
			w.pass(time.Second)
			require.Empty(w, w.gone(), "the first acknowledgement is awaited")
			w.say("p")
		}},
		"the job awaits no checkpoint": {noted(api.AnnotationAwaitCheckpoint, "false"), func(w *waiting) {
			w.at(50 * time.Second)
			require.Empty(w, w.gone(), "it serves or trains until its replacement is ready")
			w.ready.Store(true)
		}},
		"its process has ended": {nil, func(w *waiting) {
			w.at(50 * time.Second)
			w.say("p")
			w.updatePod("p", ended)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			untilReady(t, func(w *waiting) {
				tc.play(w)
				w.pass(2 * time.Second)
				assert.Equal(t, []string{"p"}, w.gone())
				assert.Equal(t, 1, w.fake.warnings(), "one request")
			}, func(pod *corev1.Pod) {
				if tc.change != nil {
					tc.change(pod)
				}
			})
		})
	}
}

// warnings is how often jobs were warned, once for each request.
func (f *fakeJobs) warnings() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, call := range f.calls {
		if strings.HasPrefix(call, "warn") {
			n++
		}
	}
	return n
}

func TestThePodsOfAFaultyNodeWaitForReadyReplacementsToo(t *testing.T) {
	inBubble(t, func(w *world) {
		var ready atomic.Bool
		pools := &fakePools{w: w}
		w.addNode("a", lost("True"))
		w.addPod("p", "a")
		w.start(pools.watchFaults, func(c *settings) { c.ReplacementReady = func(string) bool { return ready.Load() } })
		w.pass(fault.Persistence + 2*time.Minute)
		require.Equal(t, []string{"p"}, w.pods())
		ready.Store(true)
		w.pass(time.Second)
		assert.Empty(t, w.pods())
	})
}

func TestTheNextNodeOfAJobBeginsAnotherWait(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		ready := map[string]*atomic.Bool{"train-worker-0": {}, "train-worker-1": {}}
		f.add("train", 2, 2)
		w.gang("train", "worker", 2, awaiting)
		w.cloud.reclaim("train-worker-0")
		f.start(func(c *settings) { c.ReplacementReady = func(node string) bool { return ready[node].Load() } })
		w.say("train-worker-1")
		w.pass(30 * time.Second)
		w.cloud.reclaim("train-worker-1")
		w.pass(5 * time.Second)
		ready["train-worker-0"].Store(true)
		w.pass(5 * time.Second)
		require.Empty(t, f.called(), "it would wait for the other")
		w.say("train-worker-1")
		w.pass(30 * time.Second)
		require.Empty(t, f.called())
		ready["train-worker-1"].Store(true)
		w.pass(time.Second)
		require.Empty(t, f.called(), "it is asked for the last checkpoint")
		w.say("train-worker-0")
		w.pass(time.Second)
		assert.Equal(t, []string{"suspend train"}, f.called())
	})
}

// TestALeaderMayBeKilledAroundTheLastRequest kills the leader after its first write, in another bubble after its second, and so on.
func TestALeaderMayBeKilledAroundTheLastRequest(t *testing.T) {
	lived := false
	for writes := 0; !lived; writes++ {
		require.Less(t, writes, 60, "it never ends")
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) { lived = killAroundTheLastRequest(w, f, writes) })
		})
	}
}

func killAroundTheLastRequest(w *world, f *fakeJobs, writes int) (lived bool) {
	k := &killer{}
	w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetVerb() {
		case "patch", "create", "delete":
			return k.strike(), nil, apierrors.NewInternalError(fmt.Errorf("the leader is dead"))
		}
		return false, nil, nil
	})
	var ready atomic.Bool
	f.add("train", 2, 3)
	w.gang("train", "worker", 3, awaiting)
	w.cloud.reclaim("train-worker-0")
	lead := func() {
		w.start(func(c *settings) {
			c.Jobs, c.ReplacementReady = mortal{f, k}, func(string) bool { return ready.Load() }
		})
	}
	ids := sets.New[string]()
	trainFor := func(d time.Duration) {
		for until := time.Now().Add(d); time.Now().Before(until); w.pass(time.Second) {
			k.pause(func() {
				if id := w.request("train-worker-2"); id != "" && !ids.Has(id) {
					ids.Insert(id)
					w.say("train-worker-2")
				}
			})
		}
	}
	k.set(true, writes)
	lead()
	trainFor(30 * time.Second)
	if k.struck() {
		w.stop()
		k.set(false, 0)
		lead()
	}
	trainFor(20 * time.Second)
	ready.Store(true)
	trainFor(5 * time.Second)
	lived = !k.struck()
	w.stop()
	k.set(false, 0)
	lead()
	trainFor(10 * time.Second)
	assert.Equal(w, []string{"train-worker-1", "train-worker-2"}, w.pods())
	assert.Equal(w, []string{"shrink train train-worker-0"}, f.called(), "one decision")
	assert.Len(w, ids, 2, "one request at the notice, and one for what was trained until the replacement was ready")
	return lived
}

func TestANewLeaderAsksForTheLastCheckpointOnce(t *testing.T) {
	for name, dies := range map[string]func(w *waiting) bool{
		"after the acknowledgement":      func(w *waiting) bool { return !w.ready.Load() },
		"after the last request":         func(w *waiting) bool { return w.ready.Load() },
		"after each of them, and before": func(*waiting) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			untilReady(t, func(w *waiting) {
				change := func() {
					if dies(w) {
						w.stop()
						w.lead()
						w.pass(2 * time.Second)
					}
				}
				change()
				first := w.request("p")
				w.say("p")
				change()
				w.at(100 * time.Second)
				require.Empty(t, w.gone())
				require.Equal(t, first, w.request("p"))
				w.ready.Store(true)
				w.pass(time.Second)
				last := w.request("p")
				require.NotEqual(t, first, last)
				change()
				require.Equal(t, last, w.request("p"), "the next leader goes on with the same")
				require.Empty(t, w.gone())
				w.say("p")
				w.pass(2 * time.Second)
				assert.Equal(t, []string{"p"}, w.gone())
			})
		})
	}
}

func TestTheLastCheckpointIsNotAskedForAgainIfItWasSavedWhileNobodyLed(t *testing.T) {
	untilReady(t, func(w *waiting) {
		w.say("p")
		w.at(60 * time.Second)
		w.ready.Store(true)
		w.pass(time.Second)
		w.stop()
		require.Equal(t, 2, w.fake.warnings())
		w.say("p")
		w.pass(30 * time.Second)
		w.lead()
		w.pass(2 * time.Second)
		assert.Equal(t, []string{"p"}, w.gone())
	})
}
