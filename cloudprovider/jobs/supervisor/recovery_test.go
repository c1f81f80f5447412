package supervisor

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// suspended has a job suspended for a reclaim, of which no pod is left.
func suspended(w *world, change ...func(*jobs.Job)) {
	w.start()
	w.systems.launchers = 1
	w.job("train", append(change, held(jobs.HeldSuspended, jobs.ReasonReclaim))...)
	w.pass(lookEvery)
}

func TestSuspendedJobResumesWithAllOfItsWorkers(t *testing.T) {
	story(t, func(w *world) {
		before := testutil.ToFloat64(recoveries.WithLabelValues("fake", "full"))
		suspended(w, elastic(2))
		assert.Equal(t, 1, w.wakes, "a loop is asked for, to look for capacity")
		assert.Equal(t, 5, w.loop(4, 0))
		assert.Empty(t, w.systems.done(), "one worker has no place")
		assert.Equal(t, 5, w.loop(4, 1))
		assert.Empty(t, w.systems.done(), "its node is not there yet")
		assert.Equal(t, 5, w.loop(5, 0))
		assert.Equal(t, []string{"resume train 4"}, w.systems.done())
		assert.Zero(t, w.loop(5, 0), "its own pods are to come now")
		assert.Equal(t, before+1, testutil.ToFloat64(recoveries.WithLabelValues("fake", "full")))
		assert.Equal(t, 1., testutil.ToFloat64(jobsHeld.WithLabelValues("fake", "reclaim")))
		w.job("train")
		w.pass(lookEvery)
		assert.Zero(t, testutil.ToFloat64(jobsHeld.WithLabelValues("fake", "reclaim")))
	})
}

func TestDynamicJobResumesWithWhatThereIs(t *testing.T) {
	for name, test := range map[string]struct {
		ready int
		want  []string
	}{
		"fewer than its minimum and the launcher are not enough": {2, nil},
		"its minimum is":    {3, []string{"resume train 2"}},
		"more is better":    {4, []string{"resume train 3"}},
		"all is best of it": {5, []string{"resume train 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				suspended(w, elastic(2), recovering(jobs.RecoverDynamic))
				require.Equal(t, 3, w.supervisor.Returning()[0].Min)
				w.loop(test.ready, 0)
				assert.Equal(t, test.want, w.systems.done())
			})
		})
	}
}

func TestNothingIsTriedForJobsThatAreNotToComeBack(t *testing.T) {
	for name, test := range map[string]struct {
		job  []func(*jobs.Job)
		then func(w *world)
	}{
		"one whose maximum wait was over is its owner's":  {job: []func(*jobs.Job){held(jobs.HeldSuspended, jobs.ReasonMaxWait)}},
		"one that has ended":                              {job: []func(*jobs.Job){held(jobs.HeldSuspended, jobs.ReasonReclaim), func(j *jobs.Job) { j.Finished = true }}},
		"one that cannot be read":                         {job: []func(*jobs.Job){held(jobs.HeldSuspended, jobs.ReasonReclaim), func(j *jobs.Job) { j.Min, j.Max, j.Replicas = 0, 0, 0; j.Object.SetAnnotations(nil) }}},
		"one that was shrunk and that somebody suspended": {job: []func(*jobs.Job){held(jobs.HeldShrunk, jobs.ReasonReclaim), at(2), func(j *jobs.Job) { j.Suspended = true }}},
		"one of which pods are left that would count twice": {
			job:  []func(*jobs.Job){held(jobs.HeldSuspended, jobs.ReasonReclaim)},
			then: func(w *world) { w.pod("train", "worker-0", "node", leavingSlowly) },
		},
		"one of which pods are left by another name": {
			job:  []func(*jobs.Job){held(jobs.HeldSuspended, jobs.ReasonReclaim), madeOf("train-cluster")},
			then: func(w *world) { w.pod("train-cluster", "worker-0", "node", leavingSlowly) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				if test.then != nil {
					test.then(w)
				}
				w.job("train", test.job...)
				w.pass(time.Minute)
				assert.Zero(t, w.loop(5, 0))
				assert.Empty(t, w.systems.done())
			})
		})
	}
}

func leavingSlowly(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.Finalizers = ptr.To(metav1.Now()), []string{"test/slow"}
}

func TestJobThatHasStoppedAsItWasToldIsSuspendedByTheNextLeader(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.node("spot", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
		w.pod("train", "worker-0", "spot")
		told := func(j *jobs.Job) {
			held(jobs.HeldSuspended, jobs.ReasonReclaim)(j)
			j.Suspended, j.StopRequested = false, true
		}
		w.job("train", told)
		w.pod("train", "worker-1", "spot") // made anew meanwhile
		w.pass(2 * heldWithoutPodsTime)
		assert.Empty(t, w.systems.done(), "it saves its work until its node is released")

		w.job("train", told, func(j *jobs.Job) { j.Stopped = true })
		w.pass(heldTime + lookEvery)
		assert.Equal(t, []string{"suspend train reclaim"}, w.systems.done())

		w.delete("worker-0", "worker-1")
		w.job("train", told, func(j *jobs.Job) { j.Suspended = true })
		w.pass(quietTime + lookEvery)
		w.loop(4, 0)
		assert.Equal(t, []string{"resume train 4"}, w.systems.done())
	})
}

func TestJobThatWasToldToStopAndGoesOnIsNoLongerHeld(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim), resumed, func(j *jobs.Job) { j.StopRequested = true })
		w.pass(heldWithoutPodsTime + lookEvery)
		assert.Equal(t, []string{"resume train 4"}, w.systems.done(), "which takes the marks off")
	})
}

func TestOwnerWhoResumesByHandWins(t *testing.T) {
	for _, reason := range []jobs.Reason{jobs.ReasonReclaim, jobs.ReasonMaxWait} {
		t.Run(string(reason), func(t *testing.T) {
			story(t, func(w *world) {
				w.start()
				w.job("train", held(jobs.HeldSuspended, reason), resumed)
				w.pass(2 * time.Second)
				w.pod("train", "worker-0", "")
				w.pass(heldTime - 4*time.Second)
				assert.Empty(t, w.systems.done(), "the mark may be older than what it tells of")
				w.pass(4 * time.Second)
				assert.Equal(t, []string{"resume train 4"}, w.systems.done(), "which takes the marks off")
				assert.Zero(t, w.loop(5, 0))
			})
		})
	}
}

func TestSystemThatSuspendsInItsOwnTimeIsNotAnOwnerWhoResumes(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.pod("train", "worker-0", "node")
		w.pass(time.Second)
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim), resumed)
		w.pass(heldWithoutPodsTime - lookEvery)
		assert.Empty(t, w.systems.done())
		w.pass(2 * lookEvery)
		assert.Equal(t, []string{"resume train 4"}, w.systems.done(), "but it has forgotten to")
	})
}

func TestProbesThatFindNothingBecomeRare(t *testing.T) {
	story(t, func(w *world) {
		suspended(w)
		probing := 0
		for range 30 * 60 / 10 { // half an hour of loops
			if w.loop(3, 0) > 0 {
				probing++
			}
			w.pass(10 * time.Second)
		}
		assert.InDelta(t, .25*180, probing, .1*180, "a quarter of the time or so")
		for range 12 {
			w.loop(5, 0)
			w.pass(10 * time.Second)
		}
		assert.NotEmpty(t, w.systems.done(), "within two minutes of there being capacity")
	})
}

func TestProbeGoesOnWhileNodesAreOnTheirWay(t *testing.T) {
	story(t, func(w *world) {
		suspended(w)
		for range 60 {
			require.Equal(t, 5, w.loop(2, 3))
			w.pass(10 * time.Second)
		}
		w.loop(5, 0)
		assert.Equal(t, []string{"resume train 4"}, w.systems.done())
	})
}

// shrunk has a job that goes on with two workers of four.
func shrunk(w *world, change ...func(*jobs.Job)) {
	w.start()
	for _, node := range []string{"node-0", "node-1"} {
		w.node(node)
		w.pod("train", "on-"+node, node)
	}
	w.job("train", append([]func(*jobs.Job){elastic(2), at(2), held(jobs.HeldShrunk, jobs.ReasonReclaim)}, change...)...)
	w.pass(heldTime + lookEvery)
}

func TestShrunkJobIsGrownBack(t *testing.T) {
	for name, test := range map[string]struct {
		how           jobs.Recovery
		ready, coming int
		after         time.Duration
		want          []string
	}{
		"when all missing workers fit":              {jobs.RecoverFull, 2, 0, 0, []string{"grow train 4"}},
		"but not by one of two":                     {jobs.RecoverFull, 1, 0, 0, nil},
		"unless it is content with what there is":   {jobs.RecoverDynamic, 1, 0, 0, []string{"grow train 3"}},
		"and even then it waits for what is coming": {jobs.RecoverDynamic, 1, 1, 0, nil},
		"but not for ever":                          {jobs.RecoverDynamic, 1, 1, companyTime, []string{"grow train 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				shrunk(w, recovering(test.how))
				w.pass(test.after)
				require.Equal(t, 2, w.loop(test.ready, test.coming), "only the missing workers")
				assert.Equal(t, test.want, w.systems.done())
			})
		})
	}
}

func TestShrunkJobIsNotGrownTwice(t *testing.T) {
	for name, then := range map[string]func(w *world){
		"its new workers are pending": func(w *world) {
			w.pod("train", "new-0", "")
			w.pod("train", "new-1", "")
		},
		"workers that leave are still there": func(w *world) { w.pod("train", "old", "node-0", leavingSlowly) },
		"workers are about to leave": func(w *world) {
			w.node("doomed", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
			w.pod("train", "old", "doomed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				shrunk(w)
				then(w)
				w.pass(lookEvery)
				assert.Zero(t, w.loop(4, 0))
				assert.Empty(t, w.systems.done())
			})
		})
	}
}

func TestGangOfABusyJobIsOfferedSoon(t *testing.T) {
	story(t, func(w *world) {
		w.systems.tellPods(&jobs.BusyError{With: "the deletion of its cluster"})
		suspended(w)
		require.Zero(t, w.loop(0, 0))
		w.systems.tellPods(nil)
		w.supervisor.look()
		assert.Equal(t, 5, w.loop(0, 0), "or scale-down would take the nodes that wait for it")
	})
}

func TestMissingWorkersAreOfferedAtOnce(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.job("train", elastic(2), at(2), held(jobs.HeldShrunk, jobs.ReasonReclaim))
		w.pass(lookEvery)
		assert.Equal(t, 2, w.loop(0, 0), "or scale-down would take the nodes that wait for them")
	})
}

func TestJobThatIsHeldAnewIsTriedAtOnce(t *testing.T) {
	story(t, func(w *world) {
		shrunk(w)
		require.Equal(t, 2, w.loop(2, 0))
		require.Equal(t, []string{"grow train 4"}, w.systems.done())
		w.delete("on-node-0", "on-node-1")
		w.job("train", elastic(2), held(jobs.HeldSuspended, jobs.ReasonReclaim))
		w.pass(lookEvery)
		assert.Equal(t, 4, w.loop(0, 0), "the quiet after the growth is over")
	})
}

func TestMarksGoWhenAShrunkJobIsWhole(t *testing.T) {
	story(t, func(w *world) {
		shrunk(w, at(4))
		assert.Empty(t, w.systems.done(), "its system says that it has four workers, and has yet to see that two are gone")
		w.pod("train", "new-0", "node-0")
		w.pod("train", "new-1", "node-1")
		w.pass(lookEvery)
		assert.Equal(t, []string{"grow train 4"}, w.systems.done())
	})
}

func TestResumptionThatFailsIsTriedAgainLater(t *testing.T) {
	story(t, func(w *world) {
		suspended(w)
		w.systems.err = errors.New("no")
		w.loop(5, 0)
		assert.Equal(t, []string{"resume train 4"}, w.systems.done())
		assert.Zero(t, w.loop(5, 0))
		w.systems.err = nil
		w.pass(firstPause + lookEvery)
		assert.Equal(t, 5, w.loop(5, 0))
		assert.Equal(t, []string{"resume train 4"}, w.systems.done())
	})
}

func TestResumptionOfABusyJobIsTriedAgainSoon(t *testing.T) {
	story(t, func(w *world) {
		suspended(w)
		w.systems.err = &jobs.BusyError{With: "the operator"}
		w.loop(5, 0)
		w.systems.err = nil
		w.pass(2 * lookEvery)
		w.loop(5, 0)
		assert.Equal(t, []string{"resume train 4", "resume train 4"}, w.systems.done())
	})
}

func TestNewLeaderProbesAtOnce(t *testing.T) {
	story(t, func(w *world) {
		suspended(w)
		w.stop()
		w.start()
		assert.Equal(t, 5, w.loop(5, 0))
		assert.Equal(t, []string{"resume train 4"}, w.systems.done())
	})
}
