package supervisor

import (
	"errors"
	"fmt"
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
func suspended(f *fixture, change ...func(*jobs.Job)) {
	f.start()
	f.systems.launchers = 1
	f.job("train", append(change, held(jobs.HeldSuspended, jobs.HeldForReclaim))...)
	f.pass(lookEvery)
}

func TestSuspendedJobResumesWithAllOfItsWorkers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		before := testutil.ToFloat64(recoveries.WithLabelValues("fake", "full"))
		suspended(f, elastic(2))
		assert.Equal(t, 1, f.wakes, "a loop is asked for, to look for capacity")
		assert.Equal(t, 5, f.loop(4, 0))
		assert.Empty(t, f.systems.done(), "one worker has no place")
		assert.Equal(t, 5, f.loop(4, 1))
		assert.Empty(t, f.systems.done(), "its node is not there yet")
		assert.Equal(t, 5, f.loop(5, 0))
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
		assert.Zero(t, f.loop(5, 0), "its own pods are to come now")
		assert.Equal(t, before+1, testutil.ToFloat64(recoveries.WithLabelValues("fake", "full")))
		assert.Equal(t, 1., testutil.ToFloat64(jobsHeld.WithLabelValues("fake", "reclaim")))
		f.job("train")
		f.pass(lookEvery)
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
			inBubble(t, func(f *fixture) {
				suspended(f, elastic(2), recovering(jobs.RecoverDynamic))
				require.Equal(t, 3, f.supervisor.Returning()[0].Min)
				f.loop(test.ready, 0)
				assert.Equal(t, test.want, f.systems.done())
			})
		})
	}
}

func TestNothingIsTriedForJobsThatAreNotToComeBack(t *testing.T) {
	for name, test := range map[string]struct {
		job  []func(*jobs.Job)
		then func(f *fixture)
	}{
		"one whose maximum wait was over is its owner's":  {job: []func(*jobs.Job){held(jobs.HeldSuspended, jobs.HeldForMaxWait)}},
		"one that cannot be read":                         {job: []func(*jobs.Job){held(jobs.HeldSuspended, jobs.HeldForReclaim), malformed}},
		"one that cannot be read and was shrunk":          {job: []func(*jobs.Job){held(jobs.HeldShrunk, jobs.HeldForReclaim), malformed}},
		"one that was shrunk and that somebody suspended": {job: []func(*jobs.Job){held(jobs.HeldShrunk, jobs.HeldForReclaim), at(2), func(j *jobs.Job) { j.Suspended = true }}},
		"one of which pods are left that would count twice": {
			job:  []func(*jobs.Job){held(jobs.HeldSuspended, jobs.HeldForReclaim)},
			then: func(f *fixture) { f.pod("train", "worker-0", "node", leavingSlowly) },
		},
		"one of which pods are left by another name": {
			job:  []func(*jobs.Job){held(jobs.HeldSuspended, jobs.HeldForReclaim), madeOf("train-cluster")},
			then: func(f *fixture) { f.pod("train-cluster", "worker-0", "node", leavingSlowly) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				if test.then != nil {
					test.then(f)
				}
				f.job("train", test.job...)
				f.pass(time.Minute)
				assert.Zero(t, f.loop(5, 0))
				f.pass(settleWithoutPodsTime)
				assert.Empty(t, f.systems.done())
			})
		})
	}
}

func TestPodThatWasMadeAgainUnderItsNameIsNotCountedTwice(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.pod("train", "worker-0", "node")
		again := newPod("train", "worker-0", jobs.RoleWorker)
		again.UID, again.Spec.NodeName = "again", "other-node"
		_, err := f.client.CoreV1().Pods("ml").Update(f.Context(), again, metav1.UpdateOptions{}) // as a relist shows it
		require.NoError(t, err)
		f.pass(time.Second)
		own, others := f.supervisor.held.pods.onNode("node", ref("train").String())
		assert.Zero(t, own+others)
		assert.Equal(t, 1, f.supervisor.held.pods.count(ref("train")).total)

		f.delete("worker-0")
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim))
		f.pass(lookEvery)
		assert.Equal(t, 4, f.loop(4, 0), "no pod is left that would hold it up")
	})
}

// malformed leaves of the job what Registry.Held returns of one that it cannot read.
func malformed(j *jobs.Job) {
	problem := &jobs.FieldError{Path: "spec.replicas", Problem: "is missing"}
	*j = jobs.Job{Ref: j.Ref, UID: j.UID, Object: j.Object, Problem: problem}
}

func TestJobThatCannotBeReadIsReportedOnceAndTriedOnceItIsMended(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		f.loop(5, 0)
		f.systems.done()
		f.pass(startTime)
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), malformed)
		f.pass(time.Hour)
		assert.Empty(t, f.systems.done())
		assert.Equal(t, []string{ReasonMalformed + " train"}, f.events.recorded)
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim))
		f.pass(lookEvery)
		assert.Equal(t, 5, f.loop(5, 0))
	})
}

func TestHeldLabelIsRemovedFromAJobThatHasEnded(t *testing.T) {
	for _, how := range []jobs.HeldAs{jobs.HeldSuspended, jobs.HeldShrunk} {
		t.Run(string(how), func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.job("train", held(how, jobs.HeldForReclaim), at(2), ended)
				f.pass(lookEvery)
				assert.Empty(t, f.systems.done(), "its informer may be ahead of whoever holds it")
				f.pass(settleTime)
				assert.Equal(t, []string{"unhold train "}, f.systems.done())
				assert.Zero(t, f.loop(4, 0))
			})
		})
	}
}

func leavingSlowly(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.Finalizers = ptr.To(metav1.Now()), []string{"test/slow"}
}

func TestJobThatStoppedAsItWasAskedToIsSuspendedByTheNextLeader(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.node("spot", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
		f.pod("train", "worker-0", "spot")
		stopRequested := func(j *jobs.Job) {
			held(jobs.HeldSuspended, jobs.HeldForReclaim)(j)
			j.Suspended, j.StopRequested = false, true
		}
		f.job("train", stopRequested)
		f.pod("train", "worker-1", "spot") // made anew meanwhile
		f.pass(2 * settleWithoutPodsTime)
		assert.Empty(t, f.systems.done(), "it saves its work until its node is released")

		f.job("train", stopRequested, func(j *jobs.Job) { j.Stopped = true })
		f.pass(settleTime + lookEvery)
		assert.Equal(t, []string{"suspend train reclaim"}, f.systems.done())

		f.delete("worker-0", "worker-1")
		f.job("train", stopRequested, func(j *jobs.Job) { j.Suspended = true })
		f.pass(startTime + lookEvery)
		f.loop(4, 0)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
	})
}

func TestJobThatWasAskedToStopAndGoesOnIsNoLongerHeld(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), resumed, func(j *jobs.Job) { j.StopRequested = true })
		f.pass(settleWithoutPodsTime + lookEvery)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done(), "which removes the held label")
	})
}

func TestJobThatAnEarlierLeaderResumedIsNotSaidToBeResumedByOthers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), resumed)
		f.pass(2 * time.Second)
		f.pod("train", "worker-0", "") // newer than the label
		f.pass(settleTime + 2*lookEvery)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done(), "which removes the held label")
	})
}

func TestJobWhoseHeldLabelStayedWhenItWasResumedIsNotSaidToBeResumedByOthers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		since := heldSince(time.Now())
		suspended(f)
		f.systems.err = errors.New("the label stays")
		f.pass(settleTime)
		f.loop(5, 0)
		require.Equal(t, []string{"resume train 4"}, f.systems.done())
		f.systems.err = nil
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), since, resumed)
		f.pod("train", "worker-0", "")
		f.pass(15 * time.Minute)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done()[:1])
	})
}

// heldSince has it written on a held job since when it is.
func heldSince(since time.Time) func(*jobs.Job) {
	return func(j *jobs.Job) {
		annotations := j.Object.GetAnnotations()
		annotations[api.AnnotationHeldSince] = since.UTC().Format(time.RFC3339)
		j.Object.SetAnnotations(annotations)
	}
}

func TestOwnerWhoResumesByHandWins(t *testing.T) {
	for _, reason := range []jobs.HoldReason{jobs.HeldForReclaim, jobs.HeldForMaxWait} {
		t.Run(string(reason), func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				since := heldSince(time.Now())
				f.job("train", held(jobs.HeldSuspended, reason), since)
				f.pass(2 * lookEvery)
				f.job("train", held(jobs.HeldSuspended, reason), since, resumed)
				f.pass(2 * time.Second)
				f.pod("train", "worker-0", "")
				f.pass(settleTime - 8*time.Second)
				assert.Empty(t, f.systems.done(), "the label may be older than what it tells of")
				f.pass(8 * time.Second)
				assert.Equal(t, []string{"unhold train "}, f.systems.done(), "which removes the held label")
				assert.Zero(t, f.loop(5, 0))
			})
		})
	}
}

func TestWhoResumedAJobIsKnownThoughTheFirstTryToUnholdItFails(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		since := heldSince(time.Now())
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), since)
		f.pass(2 * lookEvery)
		f.systems.fail(errors.New("the API server is away"))
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), since, resumed)
		f.pass(time.Second)
		f.pod("train", "worker-0", "")
		f.pass(settleTime)
		assert.Equal(t, []string{"unhold train "}, f.systems.done())
		f.systems.fail(nil)
		f.pass(firstPause + lookEvery)
		assert.Equal(t, []string{"unhold train "}, f.systems.done(), "it is not for us to resume it")
	})
}

func TestOwnerIsToldOnceThatSomebodyRemovedTheHeldLabel(t *testing.T) {
	told := []string{"SpotJobUnheldByOther train"}
	for name, test := range map[string]struct {
		becomes func(*jobs.Job)
		want    []string
	}{
		"of a job that stays suspended": {func(j *jobs.Job) { j.Suspended = true }, told},
		"of a job that runs":            {func(*jobs.Job) {}, told},
		"of a job that is to grow":      {growing(jobs.GrowFree, 4), told},
		"of a job that has ended":       {ended, nil},
		"by making another job":         {func(j *jobs.Job) { j.UID = "another" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim))
				f.pass(settleTime + lookEvery)
				f.job("train", test.becomes)
				f.pass(time.Minute)
				assert.Equal(t, test.want, f.events.recorded)
				assert.Empty(t, f.systems.done())
			})
		})
	}
}

func TestNobodyIsToldOfALabelThatTheAutoscalerRemoves(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		f.pass(settleTime)
		f.loop(5, 0)
		require.Equal(t, []string{"resume train 4"}, f.systems.done())
		f.job("train") // as the informer sees it then
		f.pass(time.Minute)
		assert.Empty(t, f.events.recorded)
	})
	inBubble(t, func(f *fixture) { // its system cannot suspend it
		f.start()
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), resumed)
		f.pass(lookEvery)
		f.job("train")
		f.pass(time.Minute)
		assert.Empty(t, f.events.recorded)
	})
}

func TestOwnerIsToldOfALabelThatOutlivedWhatWasDone(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		f.systems.err = errors.New("the API server refuses")
		f.pass(settleTime)
		f.loop(5, 0)
		require.Equal(t, []string{"resume train 4"}, f.systems.done())
		f.pass(startTime + 2*lookEvery)
		f.job("train", func(j *jobs.Job) { j.Suspended = true })
		f.pass(time.Minute)
		assert.Equal(t, []string{"SpotJobUnheldByOther train"}, f.events.recorded)
	})
	inBubble(t, func(f *fixture) {
		shrunk(f, recovering(jobs.RecoverDynamic))
		f.loop(1, 0)
		require.Equal(t, []string{"grow train 3"}, f.systems.done(), "a part of the growth leaves the label")
		f.job("train", elastic(2), at(3))
		f.pass(time.Minute)
		assert.Equal(t, []string{"SpotJobUnheldByOther train"}, f.events.recorded)
	})
}

func TestSystemThatSuspendsInItsOwnTimeIsNotAnOwnerWhoResumes(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.pod("train", "worker-0", "node")
		f.pass(time.Second)
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), resumed)
		f.pass(settleWithoutPodsTime - lookEvery)
		assert.Empty(t, f.systems.done())
		f.pass(2 * lookEvery)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done(), "but it has forgotten to")
	})
}

func TestSearchesThatFindNoCapacityBecomeRare(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		probing := 0
		for range 30 * 60 / 10 { // half an hour of loops
			if f.loop(3, 0) > 0 {
				probing++
			}
			f.pass(10 * time.Second)
		}
		assert.InDelta(t, .25*180, probing, .1*180, "a quarter of the time or so")
		for range 12 {
			f.loop(5, 0)
			f.pass(10 * time.Second)
		}
		assert.NotEmpty(t, f.systems.done(), "within two minutes of there being capacity")
	})
}

func TestSearchGoesOnWhileNodesAreOnTheirWay(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		for range 60 {
			require.Equal(t, 5, f.loop(2, 3))
			f.pass(10 * time.Second)
		}
		f.loop(5, 0)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
	})
}

// shrunk has a job that goes on with two workers of four.
func shrunk(f *fixture, change ...func(*jobs.Job)) {
	f.start()
	for _, node := range []string{"node-0", "node-1"} {
		f.node(node)
		f.pod("train", "on-"+node, node)
	}
	f.job("train", append([]func(*jobs.Job){elastic(2), at(2), held(jobs.HeldShrunk, jobs.HeldForReclaim)}, change...)...)
	f.pass(settleTime + lookEvery)
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
		"but not for ever":                          {jobs.RecoverDynamic, 1, 1, growTogetherTime, []string{"grow train 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				shrunk(f, recovering(test.how))
				f.pass(test.after)
				require.Equal(t, 2, f.loop(test.ready, test.coming), "only the missing workers")
				assert.Equal(t, test.want, f.systems.done())
			})
		})
	}
}

func TestShrinkOfAShrunkJobIsLookedAtUntilItsSystemHasBegunOrItIsWithdrawn(t *testing.T) {
	inBubble(t, func(f *fixture) {
		busy := &jobs.BusyError{With: "a ScaleIn of pods that exist"}
		f.systems.looked(busy)
		shrunk(f)
		f.pod("train", "leaving", "node-0")
		f.pod("other", "of-another-job", "node-0")
		f.pass(staleShrinkEvery)
		f.systems.looked(busy)
		f.pass(3 * staleShrinkEvery)
		require.Equal(t, 3, f.systems.looked(busy))
		f.pass(staleShrinkEvery / 2)
		f.systems.looked(busy)
		f.delete("of-another-job")
		require.Zero(t, f.systems.looked(busy))
		f.delete("leaving")
		f.pass(time.Second)
		require.Equal(t, 1, f.systems.looked(errors.New("the API server is away")), "its system looks now, too")
		f.pass(staleShrinkEvery)
		require.Greater(t, f.systems.looked(nil), 1, "a failure is tried again sooner")
		f.pass(time.Minute)
		require.Equal(t, 1, f.systems.looked(nil))
		f.delete("on-node-1")
		f.pass(time.Minute)
		require.Zero(t, f.systems.looked(nil), "it is settled")

		f.stop()
		f.start()
		f.pass(lookEvery)
		assert.Equal(t, 1, f.systems.looked(jobs.ErrNoObject), "a new leader looks: the workers may have gone while nobody led")
		f.job("train", elastic(2), at(2), held(jobs.HeldShrunk, jobs.HeldForReclaim))
		f.pass(time.Minute)
		assert.Equal(t, 1, f.systems.looked(nil), "it was shrunk anew, and is gone")
	})
}

func TestShrunkJobIsNotGrownTwice(t *testing.T) {
	for name, then := range map[string]func(f *fixture){
		"its new workers are pending": func(f *fixture) {
			f.pod("train", "new-0", "")
			f.pod("train", "new-1", "")
		},
		"workers that leave are still there": func(f *fixture) { f.pod("train", "old", "node-0", leavingSlowly) },
		"workers are about to leave": func(f *fixture) {
			f.node("reclaiming", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
			f.pod("train", "old", "reclaiming")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				shrunk(f)
				then(f)
				f.pass(lookEvery)
				assert.Zero(t, f.loop(4, 0))
				assert.Empty(t, f.systems.done())
			})
		})
	}
}

func TestGangOfABusyJobIsOfferedSoon(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.systems.failGangs(&jobs.BusyError{With: "the deletion of its cluster"})
		suspended(f)
		require.Zero(t, f.loop(0, 0))
		f.systems.failGangs(nil)
		f.supervisor.held.look(t.Context())
		assert.Equal(t, 5, f.loop(0, 0), "or scale-down would take the nodes that wait for it")
	})
}

func TestMissingWorkersAreOfferedAtOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		for _, node := range []string{"node-0", "node-1"} {
			f.node(node)
			f.pod("train", "on-"+node, node)
		}
		f.job("train", elastic(2), at(2), held(jobs.HeldShrunk, jobs.HeldForReclaim))
		f.pass(lookEvery)
		assert.Equal(t, 2, f.loop(0, 0), "or scale-down would take the nodes that wait for them")
	})
}

func TestJobResumedWithFewerWorkersIsNotGrownBeforeTheyAreThere(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", elastic(2), at(2), held(jobs.HeldShrunk, jobs.HeldForReclaim))
		f.pass(lookEvery)
		assert.Zero(t, f.loop(2, 0), "the nodes are those that its workers are about to take")
		f.pass(settleTime)
		assert.Equal(t, 2, f.loop(2, 0), "its system may never make them again")
	})
}

func TestJobThatIsHeldAnewIsTriedAtOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		shrunk(f)
		require.Equal(t, 2, f.loop(2, 0))
		require.Equal(t, []string{"grow train 4"}, f.systems.done())
		f.delete("on-node-0", "on-node-1")
		f.job("train", elastic(2), held(jobs.HeldSuspended, jobs.HeldForReclaim))
		f.pass(lookEvery)
		assert.Equal(t, 4, f.loop(0, 0), "the quiet after the growth is over")
	})
}

func TestHeldLabelIsRemovedWhenAShrunkJobHasAllItsWorkersAgain(t *testing.T) {
	inBubble(t, func(f *fixture) {
		shrunk(f, at(4))
		assert.Empty(t, f.systems.done(), "its system says that it has four workers, and has yet to see that two are gone")
		f.pod("train", "new-0", "node-0")
		f.pod("train", "new-1", "node-1")
		f.pass(lookEvery)
		assert.Equal(t, []string{"grow train 4"}, f.systems.done())
	})
}

func TestResumptionThatFailsIsTriedAgainLater(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		f.systems.err = errors.New("no")
		f.loop(5, 0)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
		assert.Zero(t, f.loop(5, 0))
		f.systems.err = nil
		f.pass(firstPause + lookEvery)
		assert.Equal(t, 5, f.loop(5, 0))
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
	})
}

func TestResumptionOfABusyJobIsTriedAgainSoon(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		f.systems.err = &jobs.BusyError{With: "the operator"}
		f.loop(5, 0)
		f.systems.err = nil
		f.pass(2 * lookEvery)
		f.loop(5, 0)
		assert.Equal(t, []string{"resume train 4", "resume train 4"}, f.systems.done())
	})
}

func TestNewLeaderLooksForCapacityAtOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		suspended(f)
		f.stop()
		f.start()
		assert.Equal(t, 5, f.loop(5, 0))
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
	})
}

func TestJobsThatWaitInNumbersHoldUpNoneThatIsToBeResumed(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		for job := range 2_000 {
			f.pod(fmt.Sprint("waiting-", job), fmt.Sprint("waiting-", job), "")
		}
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim))
		f.pass(lookEvery)
		f.loop(5, 0)
		f.pass(time.Second)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
	})
}
