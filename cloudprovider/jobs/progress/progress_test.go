package progress

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const restart = 10 * time.Minute

// fakeJobs has one job, of four workers, on which is written what was saved. Pods without the label "job" are of no system.
type fakeJobs struct {
	mu     sync.Mutex
	saved  jobs.SavedWork
	reads  int
	writes int
	gone   bool
	broken error
	// unread is why the job cannot be read, units whether its pods save their work apart, created when it was.
	unread  error
	units   bool
	created time.Time
	// pods are those of the job.
	pods []*corev1.Pod
}

var ref = jobs.NewRef("fake", "ml", "train")

func (f *fakeJobs) Member(pod *corev1.Pod) jobs.Membership {
	if pod.Labels["job"] == "" {
		return jobs.Membership{Ref: jobs.NewRef(jobs.SystemPod, "ml", pod.Name)}
	}
	return jobs.Membership{Ref: ref, Role: jobs.Role(pod.Labels["role"])}
}

func (f *fakeJobs) UnitOf(*corev1.Pod) string {
	if f.units {
		return "unit"
	}
	return ""
}

func (f *fakeJobs) OfJob(jobs.Ref) []*corev1.Pod { return f.pods }

func (f *fakeJobs) Get(context.Context, jobs.Ref) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.gone {
		return jobs.Job{}, jobs.ErrNoObject
	}
	if f.unread != nil {
		return jobs.Job{}, f.unread
	}
	object := &unstructured.Unstructured{}
	object.SetCreationTimestamp(metav1.NewTime(f.created))
	if f.saved.Work > 0 {
		annotations := map[string]string{api.AnnotationWorkSaved: f.saved.Work.String(), api.AnnotationWorkSavedOf: f.saved.Of}
		if !f.saved.At.IsZero() {
			annotations[api.AnnotationWorkSavedAt] = f.saved.At.Format(time.RFC3339)
		}
		object.SetAnnotations(annotations)
	}
	return jobs.Job{Ref: ref, Replicas: 4, Max: 4, Object: object}, nil
}

func (f *fakeJobs) NoteWork(_ context.Context, _ jobs.Job, saved jobs.SavedWork) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.broken != nil {
		return f.broken
	}
	f.saved = saved
	return nil
}

func (f *fakeJobs) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func inBubble(t *testing.T, test func(f *fakeJobs, p *Progress)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeJobs{}
		p := New(Config{Jobs: f, Pods: f, Clock: clock.RealClock{}, Restart: restart})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		test(f, p)
	})
}

// worker runs since so long ago.
func worker(since time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"job": "train", "role": string(jobs.RoleWorker)},
		Annotations: map[string]string{api.AnnotationWork: "24h", api.AnnotationDeadline: "2026-12-31T18:00:00Z", api.AnnotationAwaitCheckpoint: "true"},
	}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(since)}}}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

func four(since time.Duration) (pods []*corev1.Pod) {
	for range 4 {
		pods = append(pods, worker(since))
	}
	return pods
}

// ask returns what is known of the job once it was read.
func ask(p *Progress, pod *corev1.Pod) time.Duration {
	p.Done(pod)
	synctest.Wait()
	done, _ := p.Done(pod)
	return done
}

func TestAJobHasSavedWhatItDidUntilItAcknowledged(t *testing.T) {
	ended := func(pod *corev1.Pod) {
		started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: started, FinishedAt: ago(0)}}
	}
	endedBefore := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: ago(time.Minute), FinishedAt: ago(time.Minute)}}
	}
	launcher := func(pod *corev1.Pod) { pod.Labels["role"] = string(jobs.RoleLauncher) }
	silent := func(pod *corev1.Pod) { pod.Annotations = nil }
	for name, c := range map[string]struct {
		pods func() []*corev1.Pod
		want time.Duration
	}{
		"it has run for ten hours": {func() []*corev1.Pod { return four(10 * time.Hour) }, 10*time.Hour - restart},
		"one was started last":     {func() []*corev1.Pod { return append(four(10 * time.Hour)[1:], worker(2*time.Hour)) }, 2*time.Hour - restart},
		"its launcher was":         {func() []*corev1.Pod { return append(four(10*time.Hour), worker(time.Hour, launcher)) }, time.Hour - restart},
		"it has just been started": {func() []*corev1.Pod { return four(time.Minute) }, 0},
		"half of its workers run":  {func() []*corev1.Pod { return four(10*time.Hour + restart)[:2] }, 5 * time.Hour},
		"some of them ended once they had saved": {func() []*corev1.Pod {
			return append(four(10 * time.Hour)[2:], worker(10*time.Hour, ended), worker(10*time.Hour, ended))
		}, 10*time.Hour - restart},
		"some of them had ended before": {func() []*corev1.Pod {
			return append(four(10*time.Hour + restart)[2:], worker(0, endedBefore), worker(0, endedBefore))
		}, 5 * time.Hour},
		"its pods state nothing": {func() []*corev1.Pod { return []*corev1.Pod{worker(10*time.Hour, silent)} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fakeJobs, p *Progress) {
				p.Note(ref, c.pods(), time.Now().Add(-time.Second), time.Now())
				assert.Equal(t, c.want, ask(p, worker(0)))
				assert.Equal(t, c.want, f.saved.Work, "which is written on it")
			})
		})
	}
}

func TestWhatIsSavedAddsUp(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		first := four(5*time.Hour + restart)
		p.Note(ref, first, time.Now(), time.Now())
		synctest.Wait()
		time.Sleep(time.Hour)
		p.Note(ref, first, time.Now(), time.Now()) // it went on
		assert.Equal(t, 6*time.Hour, ask(p, worker(0)))
		time.Sleep(10 * time.Hour)
		p.Note(ref, four(2*time.Hour+restart), time.Now(), time.Now())
		assert.Equal(t, 8*time.Hour, ask(p, worker(0)))
		p.Note(ref, []*corev1.Pod{worker(0)}, time.Now(), time.Now())
		assert.Equal(t, 8*time.Hour, ask(p, worker(0)), "a run that has saved nothing takes nothing away")
		assert.True(t, f.saved.At.Equal(time.Now()))
		p.Note(ref, four(20*time.Hour), time.Now().Add(-time.Hour), time.Now().Add(-time.Hour))
		assert.Equal(t, 8*time.Hour, ask(p, worker(0)), "what is told late was told before")
		assert.True(t, f.saved.At.Equal(time.Now()))
	})
}

func TestTheNextLeaderReadsWhatIsSaved(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.saved = jobs.SavedWork{Work: 10 * time.Hour, Of: "24h", At: time.Now().Add(-time.Hour)}
		_, known := p.Done(worker(0))
		assert.False(t, known, "it is being read")
		assert.Equal(t, 10*time.Hour, ask(p, worker(0)))
		_, known = p.Done(worker(0))
		assert.True(t, known)
		reads := f.reads
		ask(p, worker(0))
		assert.Equal(t, reads, f.reads, "it is not read each time")
		f.set(func() { f.saved.Work = 11 * time.Hour })
		time.Sleep(readEvery)
		assert.Equal(t, 11*time.Hour, ask(p, worker(0)), "its owner may write it")
		f.set(func() { f.saved = jobs.SavedWork{} })
		time.Sleep(time.Second)
		successor := worker(0, func(pod *corev1.Pod) { pod.CreationTimestamp = ago(0) })
		_, known = p.Done(successor)
		assert.False(t, known, "the pod may be of another job of that name")
		time.Sleep(2 * time.Second)
		assert.Zero(t, ask(p, successor))
		_, known = p.Done(successor)
		assert.True(t, known)
		f.set(func() { f.gone = true })
		time.Sleep(readEvery)
		assert.Zero(t, ask(p, worker(0)))
	})
}

func TestALeaderKnowsWhatItHasNotedThoughNobodyAskedForIt(t *testing.T) {
	inBubble(t, func(_ *fakeJobs, p *Progress) {
		p.Note(ref, four(10*time.Hour+restart), time.Now(), time.Now())
		synctest.Wait()
		time.Sleep(2 * time.Hour)
		done, known := p.Done(worker(0))
		assert.True(t, known)
		assert.Equal(t, 10*time.Hour, done)
	})
}

func TestAJobThatCannotBeReadIsNotWaitedForForLong(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.unread = errors.New("throttled")
		for range 9 {
			_, known := p.Done(worker(0))
			assert.False(t, known)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		_, known := p.Done(worker(0))
		assert.True(t, known)
		assert.LessOrEqual(t, f.reads, 10, "less and less often")
	})
}

func TestWhatAJobThatIsToBeAskedHasDoneCounts(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.saved = jobs.SavedWork{Work: 5 * time.Hour, Of: "24h", At: time.Now().Add(-20 * time.Hour)}
		f.pods = append(four(10 * time.Hour)[1:], worker(3*time.Hour+restart))
		pending := worker(0, func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil })
		assert.Equal(t, 5*time.Hour, ask(p, pending))
		done, _ := p.Done(f.pods[0])
		assert.Equal(t, 8*time.Hour, done, "since one of its pods was started last")
		f.pods = f.pods[2:]
		time.Sleep(runFor)
		done, _ = p.Done(f.pods[0])
		assert.Equal(t, 6*time.Hour+30*time.Minute, done.Round(time.Minute), "as much as half of its workers do")
		done, _ = p.Done(pending)
		assert.Equal(t, 5*time.Hour, done, "nobody asks for it because of a pod that does not run")
		for _, pod := range f.pods {
			delete(pod.Annotations, api.AnnotationAwaitCheckpoint)
		}
		time.Sleep(runFor)
		done, _ = p.Done(f.pods[0])
		assert.Equal(t, 5*time.Hour, done, "nor will it say that it has saved it")
		f.pods[1].Annotations[api.AnnotationAwaitCheckpoint] = "90s"
		time.Sleep(runFor)
		done, _ = p.Done(f.pods[0])
		assert.Greater(t, done, 6*time.Hour, "one of its pods is enough")
	})
}

func TestOfPodsThatSaveTheirWorkApartNobodyKnowsHowMuchItIs(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.units = true
		p.Note(ref, four(10 * time.Hour)[:1], time.Now(), time.Now())
		assert.Zero(t, ask(p, worker(0)))
		assert.Zero(t, f.writes)
	})
}

func TestOfAJobThatCannotBeReadNothingOfTheRunCounts(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.unread, f.pods = errors.New("throttled"), four(10 * time.Hour)[:1]
		p.Done(f.pods[0])
		time.Sleep(readTime)
		done, known := p.Done(f.pods[0])
		assert.True(t, known)
		assert.Zero(t, done, "nobody knows how many workers it asks for")
	})
}

func TestWhatAnOwnerWritesOfARunningJobIsNotAddedToItsRun(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.saved = jobs.SavedWork{Work: 12 * time.Hour}
		f.pods = four(13 * time.Hour)
		ask(p, worker(0))
		done, _ := p.Done(f.pods[0])
		assert.Equal(t, 12*time.Hour, done)
		p.Note(ref, f.pods, time.Now(), time.Now())
		assert.Equal(t, 12*time.Hour, ask(p, worker(0)))
		time.Sleep(time.Hour)
		done, _ = p.Done(f.pods[0])
		assert.Equal(t, 13*time.Hour, done, "what comes after that is")
	})
}

func TestARunIsNotNotedOnAnotherJobOfTheName(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.broken = errors.New("throttled")
		p.Note(ref, four(10*time.Hour), time.Now(), time.Now())
		synctest.Wait()
		f.set(func() { f.broken, f.created = nil, time.Now() })
		time.Sleep(slowestRetry)
		synctest.Wait()
		f.set(func() { assert.Zero(t, f.saved.Work) })
		assert.Zero(t, ask(p, worker(0, func(pod *corev1.Pod) { pod.CreationTimestamp = ago(0) })))
	})
}

func TestAnOwnerWhoSaysAnewHowMuchIsLeftIsBelieved(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		less := func(pod *corev1.Pod) { pod.Annotations[api.AnnotationWork] = "14h" }
		f.saved = jobs.SavedWork{Work: 10 * time.Hour, Of: "24h", At: time.Now()}
		assert.Zero(t, ask(p, worker(0, less)))
		p.Note(ref, []*corev1.Pod{worker(2*time.Hour+restart, less)}, time.Now(), time.Now())
		assert.Equal(t, 30*time.Minute, ask(p, worker(0, less)), "one worker of four")
		f.set(func() { f.saved.Of = "" })
		time.Sleep(readEvery)
		assert.Equal(t, 30*time.Minute, ask(p, worker(0)), "written by the owner, of whatever the pods state")
	})
}

func TestWhatCannotBeWrittenCountsAndIsTriedAgain(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		f.broken = errors.New("throttled")
		ask(p, worker(0))
		p.Note(ref, four(10*time.Hour+restart), time.Now(), time.Now())
		assert.Equal(t, 10*time.Hour, ask(p, worker(0)))
		f.set(func() { f.broken = nil })
		time.Sleep(slowestRetry)
		synctest.Wait()
		f.set(func() { assert.Equal(t, 10*time.Hour, f.saved.Work) })
	})
}

func TestAJobOnWhichNothingMayBeWrittenHasSavedNothing(t *testing.T) {
	for name, err := range map[string]error{"it cannot be suspended": jobs.ErrUnsupported, "it is forbidden": apierrors.NewForbidden(schema.GroupResource{}, "train", nil)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fakeJobs, p *Progress) {
				f.broken = err
				ask(p, worker(0))
				p.Note(ref, four(10*time.Hour+restart), time.Now(), time.Now())
				assert.Zero(t, ask(p, worker(0)))
				assert.Empty(t, p.saved, "it is not tried again")
			})
		})
	}
}

func TestPodsOfNoJobHaveSavedNothing(t *testing.T) {
	inBubble(t, func(f *fakeJobs, p *Progress) {
		alone := worker(10*time.Hour, func(pod *corev1.Pod) { pod.Labels = nil })
		p.Note(p.config.Jobs.Member(alone).Ref, []*corev1.Pod{alone}, time.Now(), time.Now())
		assert.Zero(t, ask(p, alone))
		assert.Zero(t, f.reads)
		_, known := p.Done(alone)
		assert.True(t, known)
	})
}

func TestJobsThatNobodyAsksForAreForgotten(t *testing.T) {
	inBubble(t, func(_ *fakeJobs, p *Progress) {
		p.known[jobs.NewRef("fake", "ml", "other")] = &entry{last: time.Now()}
		time.Sleep(forgetAfter + time.Second)
		ask(p, worker(0))
		assert.Len(t, p.known, 1)
	})
}
