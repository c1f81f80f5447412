package supervisor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

func TestJobIsSuspendedWhenItsMaximumWaitIsOver(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", waiting(10*time.Minute))
		f.pod("train", "worker-0", "")
		f.pass(2 * time.Minute)
		f.pod("train", "worker-1", "")
		f.pass(8*time.Minute - time.Second)
		assert.False(t, f.abandoned("worker-0"))
		assert.Empty(t, f.systems.done())
		f.pass(time.Second)
		assert.True(t, f.abandoned("worker-0"), "the wait began with the first pod")
		assert.True(t, f.abandoned("worker-1"))
		assert.Equal(t, []string{"suspend train max-wait"}, f.systems.done())

		f.delete("worker-0", "worker-1")
		f.pass(recheckEvery)
		f.pod("train", "again-0", "")
		assert.False(t, f.abandoned("again-0"), "its owner has resumed it: the wait begins anew")
		f.pass(10 * time.Minute)
		assert.Equal(t, []string{"suspend train max-wait"}, f.systems.done())
	})
}

func TestPodsThatComeRightAfterTheEndOfAWaitAreNotOfThatWait(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", waiting(time.Minute))
		f.pod("train", "worker-0", "")
		f.pass(time.Minute)
		require.True(t, f.abandoned("worker-0"))
		f.pass(2 * time.Second)
		f.pod("train", "again-0", "")
		assert.False(t, f.abandoned("again-0"))
	})
}

func TestItIsKnownWhichJobsHaveAMaximumWait(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("limited", waiting(time.Hour))
		f.job("patient")
		f.job("held", held(jobs.HeldSuspended, jobs.HeldForReclaim), waiting(time.Hour))
		f.pod("limited", "limited-0", "")
		f.pod("patient", "patient-0", "")
		f.pass(time.Minute)
		of := func(name string) *corev1.Pod {
			pod, err := f.client.CoreV1().Pods("ml").Get(f.Context(), name, metav1.GetOptions{})
			require.NoError(f, err)
			return pod
		}
		assert.True(t, f.supervisor.HasMaxWait(of("limited-0"), ""))
		assert.False(t, f.supervisor.HasMaxWait(of("patient-0"), ""))
		assert.True(t, f.supervisor.HasMaxWait(of("patient-0"), ref("held").String()), "that of the held job counts")
		assert.False(t, f.supervisor.HasMaxWait(of("limited-0"), ref("other").String()))
	})
}

func TestWhoseWaitIsNotOver(t *testing.T) {
	for name, test := range map[string]struct {
		job    []func(*jobs.Job)
		change func(f *fixture)
		// abandoned and done are so after an hour.
		abandoned bool
		done      []string
	}{
		"a job that may wait for ever": {},
		"one that has its pods": {job: []func(*jobs.Job){waiting(time.Minute)}, change: func(f *fixture) {
			f.delete("worker-0")
			f.pod("train", "worker-0", "node")
		}},
		"one whose owner was more patient meanwhile": {job: []func(*jobs.Job){waiting(time.Minute)}, change: func(f *fixture) {
			f.job("train", waiting(2*time.Hour))
		}},
		"one that runs with its minimum, but nothing is bought for the rest": {
			job: []func(*jobs.Job){waiting(time.Minute), elastic(2)},
			change: func(f *fixture) {
				f.pod("train", "worker-1", "node")
				f.pod("train", "worker-2", "node")
			},
			abandoned: true,
		},
		"one below its minimum is": {
			job:       []func(*jobs.Job){waiting(time.Minute), elastic(2)},
			change:    func(f *fixture) { f.pod("train", "worker-1", "node") },
			abandoned: true, done: []string{"suspend train max-wait"},
		},
		"a launcher does not make it run": {
			job: []func(*jobs.Job){waiting(time.Minute), elastic(1)},
			change: func(f *fixture) {
				f.pod("train", "launcher", "node", func(pod *corev1.Pod) { pod.Labels["role"] = string(jobs.RoleLauncher) })
			},
			abandoned: true, done: []string{"suspend train max-wait"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.job("train", test.job...)
				f.pod("train", "worker-0", "")
				if test.change != nil {
					test.change(f)
				}
				f.pass(time.Hour)
				assert.Equal(t, test.abandoned, f.abandoned("worker-0"))
				done := f.systems.done()
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
			inBubble(t, func(f *fixture) {
				f.start()
				f.node("node")
				f.pod("", "pod", "", func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} })
				f.pass(10*time.Minute - time.Second)
				assert.False(t, f.abandoned("pod"))
				f.pass(time.Minute)
				assert.True(t, f.abandoned("pod"))
				assert.Equal(t, []string{"SpotJobTimedOut pod"}, f.events.recorded, "once")
				assert.Empty(t, f.cordoned(), "a pod that cannot be suspended may still come to its node")
			})
		})
	}
}

func TestNewLeaderKnowsWhoseWaitIsOver(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", waiting(10*time.Minute))
		f.job("patient")
		f.pod("train", "worker-0", "")
		f.pod("patient", "other-0", "")
		f.pass(5 * time.Minute)
		f.stop()
		f.pass(6 * time.Minute)
		f.start()
		assert.True(t, f.abandoned("worker-0"))
		assert.False(t, f.abandoned("other-0"))
		assert.Equal(t, []string{"suspend train max-wait"}, f.systems.done())
	})
}

func TestNewLeaderReadsTheWaitsOfThePodsThatItFindsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		abandoned time.Duration
	}{
		"nothing is bought before it has read their jobs": {nil, 0},
		"but not for long where those cannot be read":     {errors.New("no"), unreadTime},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.job("train", waiting(time.Hour))
				f.pod("train", "worker-0", "")
				f.pass(time.Second)
				f.systems.readErr = test.err
				f.start()
				assert.Equal(t, test.abandoned > 0, f.abandoned("worker-0"))
				f.pod("train", "worker-1", "")
				assert.False(t, f.abandoned("worker-1"))
				f.pass(test.abandoned)
				assert.False(t, f.abandoned("worker-0"))
			})
		})
	}
}

func TestPodThatComesInTheSecondOfTheStartIsNotTakenForAnOlderOne(t *testing.T) {
	inBubble(t, func(f *fixture) {
		w := &waits{jobs: f.systems, clock: clock.RealClock{}, byJob: map[jobs.Ref]*jobWait{}}
		f.pass(time.Until(time.Now().Truncate(time.Second).Add(1300 * time.Millisecond)))
		w.start()
		f.pass(300 * time.Millisecond)
		assert.False(t, w.abandoned(newPod("train", "worker-0", jobs.RoleWorker)))
	})
}

func TestSuspensionIsTriedUntilItWorks(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.systems.err = errors.New("the API server is away")
		f.job("train", waiting(time.Minute))
		f.pod("train", "worker-0", "")
		f.pass(time.Minute + 10*time.Second)
		assert.Greater(t, len(f.systems.done()), 2)
		assert.True(t, f.abandoned("worker-0"), "nothing is bought for it meanwhile")
	})
}

func TestJobsThatWaitAreReadSlowly(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		for i := range 200 {
			name := fmt.Sprintf("train-%d", i)
			f.job(name, waiting(time.Hour))
			f.pod(name, name, "")
		}
		f.pass(readDelay - time.Second)
		assert.Zero(t, f.systems.read(), "most jobs have their pods by then")
		f.pass(3 * time.Second)
		assert.LessOrEqual(t, f.systems.read(), 4*readQPS)
		f.pass(time.Minute)
		assert.Equal(t, 200, f.systems.read())
	})
}
