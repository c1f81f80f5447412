package supervisor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// growing has a job of four workers grow, as its owner wants, up to so many.
func growing(how jobs.Growth, most int) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Max = most
		j.Object.SetLabels(labels.Merge(j.Object.GetLabels(), labels.Set{api.LabelGrow: string(how)}))
	}
}

func grownTo(workers string) func(*jobs.Job) {
	return func(j *jobs.Job) { j.Object.SetAnnotations(map[string]string{api.AnnotationGrownTo: workers}) }
}

// runningJob has a job of which so many workers run.
func runningJob(f *fixture, workers int, change ...func(*jobs.Job)) {
	f.start()
	f.job("train", change...)
	for i := range workers {
		f.pod("train", fmt.Sprintf("worker-%d", i), "node", running)
	}
	f.pass(lookEvery)
}

func running(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }

func TestJobGrowsBeyondWhatItAsksForWhenThereIsRoom(t *testing.T) {
	for how, extra := range map[jobs.Growth]podlist.Extra{jobs.GrowFree: podlist.ExtraFree, jobs.GrowBuy: podlist.ExtraSpot} {
		t.Run(string(how), func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				runningJob(f, 4, growing(how, 8))
				require.Len(t, f.supervisor.Returning(), 1)
				assert.Equal(t, extra, f.supervisor.Returning()[0].Extra)
				assert.Equal(t, 1, f.supervisor.Returning()[0].Min, "it takes what there is")
				assert.Equal(t, 4, f.loop(0, 0))
				assert.Empty(t, f.systems.done())
				f.loop(3, 0)
				if how == jobs.GrowBuy {
					assert.Empty(t, f.systems.done(), "another may yet be bought")
					f.pass(searchTime)
					f.loop(3, 0)
				}
				assert.Equal(t, []string{"grow beyond train 7"}, f.systems.done())

				f.job("train", growing(how, 8), at(7), grownTo("7"))
				for i := range 3 {
					f.pod("train", fmt.Sprintf("worker-%d", 4+i), "node", running)
				}
				f.pass(growEvery / 2)
				assert.Zero(t, f.loop(1, 0), "each growth costs it some training")
				f.pass(growEvery)
				assert.Equal(t, 1, f.loop(1, 0))
				assert.Equal(t, []string{"grow beyond train 8"}, f.systems.done())
			})
		})
	}
}

func TestJobDoesNotGrow(t *testing.T) {
	for name, test := range map[string]struct {
		workers int
		job     []func(*jobs.Job)
		event   []string
	}{
		"that has its maximum":                     {4, []func(*jobs.Job){growing(jobs.GrowBuy, 4)}, nil},
		"whose owner does not want it":             {4, []func(*jobs.Job){growing(jobs.GrowNever, 8)}, nil},
		"of which not all workers run":             {3, []func(*jobs.Job){growing(jobs.GrowBuy, 8)}, nil},
		"that has ended":                           {4, []func(*jobs.Job){growing(jobs.GrowBuy, 8), ended}, nil},
		"that somebody has suspended":              {4, []func(*jobs.Job){growing(jobs.GrowBuy, 8), func(j *jobs.Job) { j.Suspended = true }}, nil},
		"that cannot":                              {4, []func(*jobs.Job){growing(jobs.GrowBuy, 8), malformed}, []string{"SpotJobNotGrown train"}},
		"that somebody made smaller after a grown": {4, []func(*jobs.Job){growing(jobs.GrowBuy, 8), grownTo("6")}, []string{"SpotJobNotGrown train"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				runningJob(f, test.workers, test.job...)
				f.pass(time.Hour)
				assert.Zero(t, f.loop(9, 0))
				assert.Empty(t, f.systems.done())
				assert.Equal(t, test.event, f.events.recorded, "told once")
			})
		})
	}
}

func TestJobWaitsForWhatIsOnItsWayAndGrowsOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		runningJob(f, 4, growing(jobs.GrowBuy, 8))
		f.loop(1, 3)
		f.pass(deliveryTime / 2)
		f.loop(2, 2)
		assert.Empty(t, f.systems.done())
		f.pass(deliveryTime / 2)
		f.loop(3, 1)
		assert.Equal(t, []string{"grow beyond train 7"}, f.systems.done(), "but not for ever")
	})
}

func TestAnOperatorAllowsLessGrowthThanJobsAskFor(t *testing.T) {
	for most, want := range map[jobs.Growth][]podlist.Extra{jobs.GrowNever: nil, jobs.GrowFree: {podlist.ExtraFree}, jobs.GrowBuy: {podlist.ExtraSpot}} {
		inBubble(t, func(f *fixture) {
			f.maxGrowth = most
			runningJob(f, 4, growing(jobs.GrowBuy, 8))
			var extra []podlist.Extra
			for _, gang := range f.supervisor.Returning() {
				extra = append(extra, gang.Extra)
			}
			assert.Equal(t, want, extra)
		})
	}
}

func TestGrowthIsOfferedInBoundedSteps(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		for job := range 6 {
			name := fmt.Sprint("train-", job)
			f.job(name, growing(jobs.GrowBuy, 10_000), at(1))
			f.pod(name, name+"-worker", "node", running)
		}
		f.pass(lookEvery)
		offered := 0
		for _, gang := range f.supervisor.Returning() {
			assert.Len(t, gang.Pods, maxStep)
			offered += len(gang.Pods)
		}
		assert.Equal(t, maxExtra, offered)
	})
}

func TestJobDoesNotGrowBeforeAllOfItsWorkersAreReady(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", growing(jobs.GrowBuy, 8))
		for i := range 4 {
			f.pod("train", fmt.Sprintf("worker-%d", i), "node", running, func(pod *corev1.Pod) {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			})
		}
		f.pass(time.Minute)
		assert.Empty(t, f.supervisor.Returning())
	})
}

func TestGrowthComesAfterJobsThatAreHeld(t *testing.T) {
	inBubble(t, func(f *fixture) {
		runningJob(f, 4, growing(jobs.GrowBuy, 8))
		f.job("held", held(jobs.HeldSuspended, jobs.HeldForReclaim))
		f.pass(lookEvery)
		gangs := f.supervisor.Returning()
		require.Len(t, gangs, 2)
		assert.Equal(t, podlist.NotExtra, gangs[0].Extra)
		assert.Equal(t, podlist.ExtraSpot, gangs[1].Extra)
	})
}

func TestJobThatLosesNodesDoesNotGrowMeanwhile(t *testing.T) {
	inBubble(t, func(f *fixture) {
		runningJob(f, 4, growing(jobs.GrowFree, 8))
		require.Len(t, f.supervisor.Returning(), 1)
		f.node("node", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
		f.pass(lookEvery)
		assert.Empty(t, f.supervisor.Returning())
	})
}

func TestJobGrowsNoFurtherThanThereIsRoomInPoolsAndQuota(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.pools.most = 6
		runningJob(f, 4, growing(jobs.GrowBuy, 8))
		assert.Equal(t, 2, f.loop(9, 0))
		assert.Equal(t, []string{"grow beyond train 6"}, f.systems.done())
	})
}
