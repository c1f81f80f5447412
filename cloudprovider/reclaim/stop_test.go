package reclaim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// submittedForSpot is what Arena renders for --spot-instance.
func submittedForSpot(pod *corev1.Pod) { noted(api.AnnotationSupervisorSpot, "true")(pod) }

func TestAJobSubmittedForSpotInstancesSavesItsWorkBeforeItIsSuspended(t *testing.T) {
	ends := func(w *world, _ *fakeJobs) { w.updatePod("train-launcher-0", failed) }
	for name, tc := range map[string]struct {
		setUp func(w *world, f *fakeJobs)
		// after a minute
		then func(w *world, f *fakeJobs)
		want []string
		by   time.Duration // after the notice
	}{
		"it hears it and ends": {
			func(_ *world, f *fakeJobs) { f.listens = true }, ends, []string{"stop train", "suspend train"}, time.Minute + time.Second,
		},
		"it hears it, and its launcher is taken away": {
			func(_ *world, f *fakeJobs) { f.listens = true },
			func(w *world, _ *fakeJobs) { w.removePod("train-launcher-0") },
			[]string{"stop train", "suspend train"}, time.Minute + time.Second,
		},
		"it acknowledges the request": {
			func(_ *world, f *fakeJobs) { f.listens = true },
			func(w *world, _ *fakeJobs) { w.say("train-worker-2") },
			[]string{"stop train", "suspend train"}, time.Minute + time.Second,
		},
		"it hears it and takes its time": {
			func(_ *world, f *fakeJobs) { f.listens = true }, nil, []string{"stop train", "suspend train"}, 222 * time.Second,
		},
		"nobody listens": {
			func(*world, *fakeJobs) {}, nil, []string{"stop train", "suspend train"}, stopWait + 2*time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 3)
				w.gang("train", "worker", 3, submittedForSpot)
				w.gang("train", "launcher", 1, submittedForSpot)
				tc.setUp(w, f)
				w.cloud.reclaim("train-worker-0", "train-worker-1")
				f.start()
				w.pass(min(time.Minute, tc.by) - time.Second - time.Second)
				require.Equal(t, []string{"stop train"}, f.called(), "it is not suspended before it has saved anything")
				require.Empty(t, w.gone())
				if tc.then != nil {
					tc.then(w, f)
				}
				w.pass(tc.by - time.Minute + time.Second)
				assert.Equal(t, tc.want, f.called())
				assert.Empty(t, w.gone(), "its system ends its pods")
			})
		})
	}
}

func TestAJobIsNotToldToStopFor(t *testing.T) {
	for name, setUp := range map[string]func(w *world, f *fakeJobs){
		"a loss that it can do with": func(w *world, f *fakeJobs) {
			f.add("train", 1, 3)
			w.gang("train", "worker", 3, submittedForSpot)
		},
		"a loss, if it was not submitted so": func(w *world, f *fakeJobs) {
			f.add("train", 3, 3)
			w.gang("train", "worker", 3)
		},
		"a loss of which it has saved its work": func(w *world, f *fakeJobs) {
			f.add("train", 3, 3)
			w.gang("train", "worker", 3, submittedForSpot, awaiting)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				setUp(w, f)
				w.cloud.reclaim("train-worker-0")
				f.start()
				if w.pod("train-worker-1").Annotations[api.AnnotationAwaitCheckpoint] != "" {
					w.say("train-worker-1")
				}
				w.pass(2 * time.Minute)
				assert.NotEmpty(t, f.called())
				assert.NotContains(t, f.called(), "stop train")
			})
		})
	}
}

func TestAJobThatCannotBeToldToStopIsSuspendedAllTheSame(t *testing.T) {
	for name, change := range map[string]func(f *fakeJobs){
		"fails":       func(f *fakeJobs) { f.fails["stop"] = errors.New("conflict") },
		"hangs":       func(f *fakeJobs) { f.hangs["stop"] = true },
		"unsupported": func(f *fakeJobs) { f.fails["stop"] = jobs.ErrUnsupported },
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 2, 2)
				change(f)
				w.gang("train", "worker", 2, submittedForSpot)
				w.cloud.reclaim("train-worker-0")
				f.start()
				w.pass(stopWait + 5*time.Second)
				assert.True(t, f.suspended("train"))
			})
		})
	}
}

// tellToStop has a job of two workers and a launcher told to stop, ten seconds ago, because a Node of it is reclaimed.
func tellToStop(w *world, f *fakeJobs) {
	f.add("train", 2, 2)
	f.listens = true
	w.gang("train", "worker", 2, submittedForSpot)
	w.gang("train", "launcher", 1, submittedForSpot)
	w.cloud.reclaim("train-worker-0")
	f.start()
	w.pass(10 * time.Second)
}

func TestAJobThatEndsAsItIsToldIsSuspendedThoughItsPodsAreGone(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		tellToStop(w, f)
		require.False(t, f.suspended("train"))
		// Its system takes its end for a failure, and cleans up.
		for _, pod := range []string{"train-launcher-0", "train-worker-0", "train-worker-1"} {
			w.removePod(pod)
		}
		w.pass(time.Second)
		assert.True(t, f.suspended("train"), "or it would be over for good")
	})
}

func TestAJobThatWasToldToStopIsSuspendedThoughEnoughWorkersSurvive(t *testing.T) {
	for name, leaving := range map[string][]string{
		"the launcher alone is lost": {"train-launcher-0"},
		"the launcher and a worker":  {"train-launcher-0", "train-worker-0"},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 1, 3)
				f.listens = true
				w.gang("train", "worker", 3, submittedForSpot)
				w.gang("train", "launcher", 1, submittedForSpot)
				w.cloud.reclaim(leaving...)
				f.start()
				w.pass(10 * time.Second)
				require.Equal(t, []string{"stop train"}, f.called())
				w.updatePod("train-launcher-0", failed)
				w.pass(5 * time.Second)
				assert.Equal(t, []string{"stop train", "suspend train"}, f.called(), "or it has failed for good")
			})
		})
	}
}

func TestAJobThatStoppedForAFormerLeaderIsSuspendedThoughAWorkerStillRuns(t *testing.T) {
	for name, least := range map[string]int{"enough workers survive": 1, "too few survive": 3} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", least, 3)
				f.listens = true
				f.jobs["train"].StopRequested, f.jobs["train"].Stopped = true, true
				w.gang("train", "worker", 3, submittedForSpot, awaiting)
				w.gang("train", "launcher", 1, submittedForSpot)
				w.updatePod("train-launcher-0", failed)
				w.cloud.reclaim("train-worker-0")
				f.start()
				w.pass(time.Minute)
				assert.Equal(t, []string{"suspend train"}, f.called(), "or it has failed for good")
				assert.Contains(t, w.seen(), "SpotCheckpointAcknowledged train", "it has ended as it was told to")
			})
		})
	}
}

func TestAJobThatStopsBeforeItIsToldAgainIsSuspendedAtOnce(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 3, 3)
		f.jobs["train"].StopRequested = true
		w.gang("train", "worker", 3, submittedForSpot)
		w.cloud.reclaim("train-worker-0")
		f.takes = map[string]time.Duration{"stop": 5 * time.Second}
		f.start()
		w.pass(2 * time.Second)
		f.mu.Lock()
		f.jobs["train"].Stopped = true // which Stop finds, and tells nobody
		f.mu.Unlock()
		w.pass(30 * time.Second)
		assert.True(t, f.suspended("train"))
		assert.Contains(t, w.seen(), "SpotCheckpointAcknowledged train")
	})
}

func TestARequestHasOneOutcomeThoughItsJobIsToldToStopAfterTheWait(t *testing.T) {
	for name, tc := range map[string]struct {
		then                 func(w *world)
		acknowledged, missed float64
		event                string
		acknowledgesLate     bool
	}{
		"the job acknowledges it": {func(w *world) { w.say("train-worker-2") }, 1, 0, "SpotCheckpointAcknowledged train", false},
		"the job ends":            {func(w *world) { w.updatePod("train-launcher-0", failed) }, 1, 0, "SpotCheckpointAcknowledged train", true},
		"the job takes its time":  {func(*world) {}, 0, 1, "SpotCheckpointMissed train", false},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				acknowledged := value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged")
				missed := value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "missed")
				f.add("train", 2, 3)
				f.listens = true
				w.gang("train", "worker", 3, submittedForSpot, noted(api.AnnotationAwaitCheckpoint, "30s"))
				w.gang("train", "launcher", 1, submittedForSpot)
				w.cloud.reclaim("train-worker-0", "train-worker-1")
				f.start()
				w.pass(45 * time.Second)
				require.Equal(t, []string{"stop train"}, f.called())
				tc.then(w)
				w.pass(10 * time.Second)
				if tc.acknowledgesLate {
					w.say("train-worker-2")
				}
				w.pass(3 * time.Minute)
				require.Contains(t, f.called(), "suspend train")
				assert.Equal(t, tc.acknowledged, value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged")-acknowledged)
				assert.Equal(t, tc.missed, value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "missed")-missed)
				told := slices.DeleteFunc(w.seen(), func(event string) bool { return !strings.HasPrefix(event, "SpotCheckpoint") })
				assert.Equal(t, []string{tc.event}, slices.Compact(told))
			})
		})
	}
}

func TestNoRequestIsMissedOfAJobWhosePodsAreGone(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		missed := value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "missed")
		f.add("train", 2, 2)
		w.gang("train", "worker", 2, submittedForSpot)
		w.gang("train", "launcher", 1, submittedForSpot)
		w.cloud.reclaim("train-worker-0")
		f.start()
		w.pass(10 * time.Second)
		require.Equal(t, []string{"stop train"}, f.called(), "nobody hears it")
		for _, pod := range []string{"train-launcher-0", "train-worker-0", "train-worker-1"} {
			w.removePod(pod)
		}
		w.pass(time.Second)
		assert.Equal(t, []string{"stop train", "suspend train"}, f.called())
		w.pass(stopWait)
		assert.Equal(t, missed, value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "missed"))
		assert.NotContains(t, w.seen(), "SpotCheckpointMissed train")
	})
}

func TestARequestIsCountedOnceThoughTheJobEndsRightAfterItsAcknowledgement(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		acknowledged := value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged")
		tellToStop(w, f)
		require.Equal(t, []string{"stop train"}, f.called())
		w.say("train-worker-1")
		w.pass(60 * time.Millisecond) // it is looked at, and not yet by what waits for its end
		require.Equal(t, acknowledged+1, value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged"))
		for _, pod := range []string{"train-launcher-0", "train-worker-0", "train-worker-1"} {
			w.removePod(pod)
		}
		w.pass(time.Second)
		assert.Equal(t, acknowledged+1, value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "acknowledged"))
	})
}

func failed(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }

func (w *world) removePod(name string) {
	w.Helper()
	require.NoError(w, w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", name))
}
