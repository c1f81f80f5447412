package trigger

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// newTestTrigger has an interval of 10 s. It is used within a bubble, where the real clock is a fake one.
func newTestTrigger() *Trigger {
	return New(Config{
		Clock: clock.RealClock{}, Interval: 10 * time.Second, Arrivals: podlist.NewArrivals(clock.RealClock{}),
		BypassedSchedulers: map[string]bool{"bypassed": true},
	})
}

func TestTriggerWakes(t *testing.T) {
	second := time.Second
	tests := map[string]struct {
		productive bool
		settled    time.Duration // 0: nothing settles
		event      time.Duration // 0: no event
		pod        time.Duration // 0: no pod that would have to settle
		want       time.Duration
	}{
		"after the interval where nothing happens":       {want: 10 * second},
		"at once after a productive loop":                {productive: true, want: 0},
		"when a settle window ends":                      {settled: 2 * second, want: 2 * second},
		"after the interval where a window lasts longer": {settled: 20 * second, want: 10 * second},
		"on an event":                      {event: 3 * second, want: 3 * second},
		"on an event before a window ends": {event: second, settled: 2 * second, want: second},
		"on a pod":                         {pod: second, want: second},
		"when a window ends where a pod comes before that": {pod: second, settled: 2 * second, want: 2 * second},
		"on an event though a pod waits for the window":    {pod: second, event: 1500 * time.Millisecond, settled: 2 * second, want: 1500 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var settled time.Time
				if test.settled > 0 {
					settled = time.Now().Add(test.settled)
				}
				trigger := newTestTrigger()
				if test.event > 0 {
					time.AfterFunc(test.event, trigger.Notify)
				}
				if test.pod > 0 {
					time.AfterFunc(test.pod, func() { trigger.PodHandler().OnAdd(testutil.NewPod("p", testutil.Unschedulable), false) })
				}
				began := time.Now()
				require.NoError(t, trigger.Wait(t.Context(), test.productive, func() time.Time { return settled }))
				assert.Equal(t, test.want, time.Since(began))
			})
		})
	}
}

func nothingSettles() time.Time { return time.Time{} }

func TestTriggerWaitsOnWhereASettleWindowHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gap, pods = 800 * time.Millisecond, 5 // each of which begins the window of a second anew
		trigger := newTestTrigger()
		for i := range pods {
			time.AfterFunc(time.Duration(i)*gap, func() {
				trigger.PodHandler().OnAdd(testutil.NewPod("p"+strconv.Itoa(i), testutil.Unschedulable), false)
			})
		}
		began, asked := time.Now(), 0
		require.NoError(t, trigger.Wait(t.Context(), false, func() time.Time {
			asked++
			return began.Add(min(time.Since(began).Truncate(gap), (pods-1)*gap) + time.Second)
		}))
		assert.Equal(t, (pods-1)*gap+time.Second, time.Since(began))
		assert.LessOrEqual(t, asked, 2*pods+1)
	})
}

func TestABurstIsNotHeldForAsLongAsItsFirstPodsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, gap = 100, time.Millisecond
		trigger := newTestTrigger()
		for i := range pods {
			time.AfterFunc(time.Duration(i+1)*gap, func() {
				trigger.PodHandler().OnAdd(testutil.NewPod("p"+strconv.Itoa(i), testutil.Unschedulable), false)
			})
		}
		began, asked := time.Now(), 0
		require.NoError(t, trigger.Wait(t.Context(), false, func() time.Time {
			asked++
			arrived := min(pods, time.Since(began)/gap)
			latest := began.Add(arrived * gap)
			switch {
			case arrived == 0:
				return time.Time{}
			case arrived < pods/2:
				return latest.Add(time.Second)
			}
			return latest.Add(lookAgain)
		}))
		assert.LessOrEqual(t, time.Since(began), pods*gap+2*lookAgain)
		assert.LessOrEqual(t, asked, 6, "not for each pod")
	})
}

func TestPodThatHasToSettleStartsNoLoopUntilItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := newTestTrigger()
		arrives := time.Now().Add(3 * time.Second)
		time.AfterFunc(time.Until(arrives), func() {
			trigger.PodHandler().OnAdd(testutil.NewPod("p", testutil.Unschedulable), false)
		})
		require.NoError(t, trigger.Wait(t.Context(), false, func() time.Time {
			if time.Now().Before(arrives) {
				return time.Time{}
			}
			return arrives.Add(time.Second)
		}))
		assert.Equal(t, time.Second, time.Since(arrives))
	})
}

func TestTriggerCoalescesABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := newTestTrigger()
		for range 100 {
			trigger.Notify()
		}
		began := time.Now()
		require.NoError(t, trigger.Wait(t.Context(), false, nothingSettles))
		assert.Zero(t, time.Since(began))
		require.NoError(t, trigger.Wait(t.Context(), false, nothingSettles))
		assert.Equal(t, 10*time.Second, time.Since(began), "a hundred events are one loop")
	})
}

func TestTriggerKeepsLoopsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := newTestTrigger()
		began := time.Now()
		for range 5 {
			trigger.Notify()
			require.NoError(t, trigger.Wait(t.Context(), false, nothingSettles))
		}
		assert.Equal(t, 4*minLoopGap, time.Since(began))
	})
}

func TestTriggerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := newTestTrigger()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, trigger.Wait(ctx, false, nothingSettles), context.DeadlineExceeded)
		assert.Error(t, trigger.Wait(ctx, true, nothingSettles), "no loop starts any more")
	})
}

func TestTriggerOnPods(t *testing.T) {
	deleted := func(pod *apiv1.Pod) { pod.DeletionTimestamp = &pod.CreationTimestamp }
	done := func(pod *apiv1.Pod) { pod.Status.Phase = apiv1.PodSucceeded }
	bypassed := func(pod *apiv1.Pod) { pod.Spec.SchedulerName = "bypassed" }
	gated := func(pod *apiv1.Pod) {
		pod.Status.Conditions = []apiv1.PodCondition{{Type: apiv1.PodScheduled, Status: apiv1.ConditionFalse, Reason: apiv1.PodReasonSchedulingGated}}
	}
	tests := map[string]struct {
		old, pod *apiv1.Pod
		wakes    bool
		// urgent: it would not be deferred.
		urgent  bool
		arrived bool
	}{
		"a pod nobody has looked at yet only arrives":        {pod: testutil.NewPod("p"), arrived: true},
		"a pod becomes testutil.Unschedulable":               {old: testutil.NewPod("p"), pod: testutil.NewPod("p", testutil.Unschedulable), wakes: true, arrived: true},
		"a pod without GPU becomes testutil.Unschedulable":   {pod: testutil.NewPod("p", testutil.WithoutGPU, testutil.Unschedulable), wakes: true, urgent: true, arrived: true},
		"a pod of a gang becomes testutil.Unschedulable":     {pod: testutil.NewPod("p", testutil.InGang("g", 2), testutil.Unschedulable), wakes: true, urgent: true, arrived: true},
		"a pod was testutil.Unschedulable before we came":    {pod: testutil.NewPod("p", testutil.Unschedulable), wakes: true, arrived: true},
		"an testutil.Unschedulable pod is looked at again":   {old: testutil.NewPod("p", testutil.Unschedulable), pod: testutil.NewPod("p", testutil.Unschedulable), arrived: true},
		"a gated pod only arrives":                           {pod: testutil.NewPod("p", gated), arrived: true},
		"a pod of a bypassed scheduler counts from creation": {pod: testutil.NewPod("p", bypassed), wakes: true, arrived: true},
		"a pod with a node is none of our business":          {pod: testutil.NewPod("p", testutil.Unschedulable, testutil.OnNode("n"))},
		"a pod gets a node":                                  {old: testutil.NewPod("p", testutil.Unschedulable), pod: testutil.NewPod("p", testutil.OnNode("n"))},
		"a pod that is being deleted is not bought for":      {pod: testutil.NewPod("p", testutil.Unschedulable, deleted)},
		"a pod that has ended is not bought for":             {pod: testutil.NewPod("p", done)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			trigger := newTestTrigger()
			if test.old != nil {
				trigger.config.Arrivals.Note(test.old)
			}
			handler := trigger.PodHandler()
			if test.old == nil {
				handler.OnAdd(test.pod, true)
			} else {
				handler.OnUpdate(test.old, test.pod)
			}
			assert.Equal(t, test.wakes && !test.urgent, len(trigger.settling) == 1)
			assert.Equal(t, test.urgent, len(trigger.pods) == 1)
			_, arrived := trigger.config.Arrivals.Of(test.pod)
			assert.Equal(t, test.arrived, arrived)
			handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: test.pod})
			assert.Empty(t, trigger.config.Arrivals.Waiting())
		})
	}
}

func TestPodsAndGangsStartFewerLoopsWhereALoopTakesLong(t *testing.T) {
	for name, test := range map[string]struct {
		took, want time.Duration
	}{
		"a short one is followed at once":         {300 * time.Millisecond, 0},
		"a long one by a rest":                    {1500 * time.Millisecond, 5 * time.Second},
		"which is never longer than the interval": {20 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trigger := newTestTrigger()
				require.NoError(t, trigger.Wait(t.Context(), true, nothingSettles))
				pod := func() { trigger.PodHandler().OnAdd(testutil.NewPod("p", testutil.Unschedulable), false) }
				for _, event := range []func(){pod, trigger.NotifyGang} {
					time.Sleep(test.took)
					event()
					ended := time.Now()
					require.NoError(t, trigger.Wait(t.Context(), false, nothingSettles))
					assert.Equal(t, test.want, time.Since(ended))
				}
			})
		})
	}
}

func TestANoticeStartsALoopThoughOthersRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := newTestTrigger()
		require.NoError(t, trigger.Wait(t.Context(), true, nothingSettles))
		time.Sleep(2 * time.Second)
		ended := time.Now()
		for i := range 100 {
			time.AfterFunc(time.Duration(i)*20*time.Millisecond, func() {
				trigger.PodHandler().OnAdd(testutil.NewPod("p"+strconv.Itoa(i), testutil.Unschedulable), false)
			})
		}
		time.AfterFunc(time.Second, trigger.Notify)
		require.NoError(t, trigger.Wait(t.Context(), false, nothingSettles))
		assert.Equal(t, time.Second, time.Since(ended))
	})
}
