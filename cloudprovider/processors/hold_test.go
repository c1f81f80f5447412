package processors

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// chain stands for core's processors: it takes away pods that fit existing nodes and may add some of its own.
type chain struct {
	fits []string
	adds []*apiv1.Pod
	err  error
}

func (c *chain) Process(_ *cacontext.AutoscalingContext, pods []*apiv1.Pod) ([]*apiv1.Pod, error) {
	var left []*apiv1.Pod
	for _, pod := range pods {
		if !slices.Contains(c.fits, pod.Name) {
			left = append(left, pod)
		}
	}
	return append(left, c.adds...), c.err
}

func (c *chain) CleanUp() {}

func TestSettling(t *testing.T) {
	const window = time.Second
	type loop struct {
		at       time.Duration
		pending  []*apiv1.Pod
		released []string
		// wake is when the next settle window ends, 0 for never.
		wake time.Duration
	}
	first, second, other := newPod("first"), newPod("second"), newPod("other", selecting("gpu", "a10"))
	tests := map[string]struct {
		arrivals map[time.Duration]*apiv1.Pod
		loops    []loop
	}{
		"a lone pod waits for one window": {
			arrivals: map[time.Duration]*apiv1.Pod{0: first},
			loops: []loop{
				{at: 0, pending: []*apiv1.Pod{first}, released: []string{}, wake: window},
				{at: 999 * time.Millisecond, pending: []*apiv1.Pod{first}, released: []string{}, wake: window},
				{at: window, pending: []*apiv1.Pod{first}, released: []string{"first"}},
			},
		},
		"the window starts when the pod arrives, not when a loop sees it": {
			arrivals: map[time.Duration]*apiv1.Pod{0: first},
			loops:    []loop{{at: 3 * time.Second, pending: []*apiv1.Pod{first}, released: []string{"first"}}},
		},
		"another pod of the demand begins the window anew": {
			arrivals: map[time.Duration]*apiv1.Pod{0: first, 600 * time.Millisecond: second},
			loops: []loop{
				{at: window, pending: []*apiv1.Pod{first, second}, released: []string{}, wake: 1600 * time.Millisecond},
				{at: 1600 * time.Millisecond, pending: []*apiv1.Pod{first, second}, released: []string{"first", "second"}},
			},
		},
		"demands settle apart": {
			arrivals: map[time.Duration]*apiv1.Pod{0: first, 600 * time.Millisecond: other},
			loops:    []loop{{at: window, pending: []*apiv1.Pod{first, other}, released: []string{"first"}, wake: 1600 * time.Millisecond}},
		},
		"a settled pod is not held again by a later one": {
			arrivals: map[time.Duration]*apiv1.Pod{0: first, 1100 * time.Millisecond: second},
			loops: []loop{
				{at: window, pending: []*apiv1.Pod{first}, released: []string{"first"}},
				{at: 1200 * time.Millisecond, pending: []*apiv1.Pod{first, second}, released: []string{"first"}, wake: 2100 * time.Millisecond},
			},
		},
		"pods without GPUs pass at once": {
			loops: []loop{{pending: []*apiv1.Pod{newPod("cpu", withoutGPU)}, released: []string{"cpu"}}},
		},
		"shared GPUs settle like whole ones": {
			loops: []loop{{pending: []*apiv1.Pod{newPod("shared", withoutGPU, requesting("aliyun.com/gpu-mem", "4"))}, released: []string{}, wake: window}},
		},
		"pods of a ProvisioningRequest pass at once": {
			loops: []loop{{pending: []*apiv1.Pod{newPod("pr", annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "r"))}, released: []string{"pr"}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(epoch)
			arrivals := NewArrivals(clk)
			hold := NewHold(&chain{}, arrivals, &Gangs{}, clk, window)
			for _, loop := range test.loops {
				for after, pod := range test.arrivals {
					if clk.SetTime(epoch.Add(after)); after <= loop.at {
						arrivals.Note(pod)
					}
				}
				clk.SetTime(epoch.Add(loop.at))
				ctx, called, _ := newContext(nil, nil)
				released, err := hold.Process(ctx, loop.pending)
				require.NoError(t, err)
				assert.ElementsMatch(t, loop.released, names(released), "released at %v", loop.at)
				assert.False(t, called.ScaleDownDisabledForLoop)
				wake, waits := hold.NextWake()
				assert.Equal(t, loop.wake != 0, waits)
				if waits {
					assert.Equal(t, epoch.Add(loop.wake), wake)
				}
			}
		})
	}
}

func TestCrowdIsWaitedForAsLongAsItsPaceAsks(t *testing.T) {
	const window = time.Second
	for name, test := range map[string]struct {
		pods int
		gap  time.Duration
		want time.Duration
	}{
		"a job of eight":               {8, 3 * time.Millisecond, window},
		"a hundred at a stroke":        {100, 0, window / 5},
		"a hundred, fast":              {100, 3 * time.Millisecond, window / 5},
		"a hundred, one after another": {100, 30 * time.Millisecond, 600 * time.Millisecond},
		"forty, throttled at 20 QPS":   {40, 50 * time.Millisecond, window},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(epoch)
			arrivals := NewArrivals(clk)
			hold := NewHold(&chain{}, arrivals, &Gangs{}, clk, window)
			var pending []*apiv1.Pod
			for i := range test.pods {
				clk.SetTime(epoch.Add(time.Duration(i) * test.gap))
				pending = append(pending, newPod(fmt.Sprintf("pod-%d", i)))
				arrivals.Note(pending[i])
			}
			last := clk.Now()
			ctx, _, _ := newContext(nil, nil)
			released, err := hold.Process(ctx, pending)
			require.NoError(t, err)
			assert.Empty(t, released)
			wake, waits := hold.NextWake()
			require.True(t, waits)
			assert.Equal(t, test.want, wake.Sub(last))
		})
	}
}

func TestSteadyStreamDoesNotStarve(t *testing.T) {
	const window = time.Second
	clk := testingclock.NewFakePassiveClock(epoch)
	arrivals := NewArrivals(clk)
	hold := NewHold(&chain{}, arrivals, &Gangs{}, clk, window)
	stream := newPods(20, "p")
	for i := range stream {
		clk.SetTime(epoch.Add(time.Duration(i) * 500 * time.Millisecond))
		arrivals.Note(stream[i])
		ctx, _, _ := newContext(nil, nil)
		released, err := hold.Process(ctx, stream[:i+1])
		require.NoError(t, err)
		if i < 10 {
			assert.Empty(t, released, "after %v", clk.Since(epoch))
		} else {
			assert.Contains(t, names(released), "p-0", "after %v", clk.Since(epoch))
		}
	}
}

func TestGangsAreHeldUntilComplete(t *testing.T) {
	gang := newPods(4, "g", inGang("g", 4))
	tests := map[string]struct {
		pending, running []*apiv1.Pod
		fits             []string
		released         []string
		missing          int
	}{
		"an incomplete gang is held": {
			pending: gang[:3], released: []string{},
		},
		"a complete gang is released without settling": {
			pending: gang, released: []string{"g-0", "g-1", "g-2", "g-3"}, missing: 4,
		},
		"members that run complete the gang": {
			pending: gang[:1], running: newPods(3, "r", inGang("g", 4), onNode("n")), released: []string{"g-0"}, missing: 1,
		},
		"members that are being deleted do not": {
			pending:  gang[:1],
			running:  newPods(3, "r", inGang("g", 4), onNode("n"), func(pod *apiv1.Pod) { pod.DeletionTimestamp = &pod.CreationTimestamp }),
			released: []string{},
		},
		"a namesake in another namespace does not": {
			pending:  gang[:3],
			running:  newPods(1, "r", inGang("g", 4), onNode("n"), func(pod *apiv1.Pod) { pod.Namespace = "other" }),
			released: []string{},
		},
		"members that fit existing nodes complete the gang and are not bought for": {
			pending: gang, fits: []string{"g-0", "g-1"}, released: []string{"g-2", "g-3"}, missing: 2,
		},
		"an incomplete gang is held even where some of it fits": {
			pending: gang[:3], fits: []string{"g-0"}, released: []string{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(epoch)
			gangs := &Gangs{}
			hold := NewHold(&chain{fits: test.fits}, NewArrivals(clk), gangs, clk, time.Second)
			ctx, called, _ := newContext(append(test.running, test.pending...), nil)
			released, err := hold.Process(ctx, slices.Clone(test.pending))
			require.NoError(t, err)
			assert.ElementsMatch(t, test.released, names(released))
			assert.False(t, called.ScaleDownDisabledForLoop)
			if test.missing > 0 {
				gang, missing := gangs.Missing(gang[0])
				assert.Equal(t, "ml/g", gang)
				assert.Equal(t, test.missing, missing)
			}
		})
	}
}

// Seven of a gang of eight exist; the eighth is never made, because of a quota. Its scheduler binds none of them.
func TestIncompleteGangKeepsNoIdleNodes(t *testing.T) {
	for name, test := range map[string]struct {
		pods []*apiv1.Pod
		used int
	}{
		"an incomplete gang leaves them to scale-down":   {newPods(7, "g", inGang("g", 8), replicated), 0},
		"a complete gang uses them":                      {newPods(7, "g", inGang("g", 7), replicated), 7},
		"others have the places that it does not occupy": {append(newPods(7, "g", inGang("g", 8), replicated), newPods(3, "p", replicated)...), 3},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*apiv1.Node
			for i := range 7 {
				nodes = append(nodes, newNode(fmt.Sprint("idle-", i), "cpu", "8", "memory", "32Gi", "pods", "64", api.ResourceGPU, "1"))
			}
			core := newRealCore(t, nil, nil, true)
			require.NoError(t, core.ctx.ClusterSnapshot.SetClusterState(nodes, nil, nil))
			clk := testingclock.NewFakePassiveClock(epoch)
			hold := NewHold(core.chain, NewArrivals(clk), &Gangs{}, clk, 0)
			left, err := hold.Process(core.ctx, test.pods)
			require.NoError(t, err)
			assert.Empty(t, left)
			infos, err := core.ctx.ClusterSnapshot.ListNodeInfos()
			require.NoError(t, err)
			used := 0
			for _, info := range infos {
				used += len(info.Pods())
			}
			assert.Equal(t, test.used, used)
		})
	}
}

func TestWhatAGangWantsBeyondItsMinimumSettlesLikeOtherPods(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(epoch)
	gangs := &Gangs{}
	hold := NewHold(&chain{}, NewArrivals(clk), gangs, clk, time.Second)
	more := newPods(2, "more", inGang("g", 2))
	ctx, _, _ := newContext(newPods(2, "r", inGang("g", 2), onNode("n")), nil)
	released, err := hold.Process(ctx, more)
	require.NoError(t, err)
	assert.Empty(t, released)
	clk.SetTime(epoch.Add(time.Second))
	released, err = hold.Process(ctx, more)
	require.NoError(t, err)
	assert.Len(t, released, 2)
	gang, _ := gangs.Missing(more[0])
	assert.Empty(t, gang)
}

func TestMalformedGangIsToldOnceAndTreatedAsOrdinary(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(epoch)
	hold := NewHold(&chain{}, NewArrivals(clk), &Gangs{}, clk, 0)
	pod := newPod("p", labelled("gpu-spot.autoscaling/gang-name", "g"))
	ctx, _, recorder := newContext(nil, nil)
	for range 3 {
		released, err := hold.Process(ctx, []*apiv1.Pod{pod})
		require.NoError(t, err)
		assert.Equal(t, []string{"p"}, names(released))
	}
	require.Len(t, recorder.Events, 1)
	assert.Contains(t, <-recorder.Events, "Warning SpotGangMalformed")
}

func TestPodsThatTheChainAddsAreNotHeld(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(epoch)
	hold := NewHold(&chain{adds: newPods(1, "drained", inGang("g", 4))}, NewArrivals(clk), &Gangs{}, clk, time.Second)
	ctx, _, _ := newContext(nil, nil)
	released, err := hold.Process(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"drained-0"}, names(released))
}

func TestChainErrorIsPassedOn(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(epoch)
	broken := errors.New("broken")
	hold := NewHold(&chain{err: broken}, NewArrivals(clk), &Gangs{}, clk, time.Second)
	ctx, _, _ := newContext(nil, nil)
	_, err := hold.Process(ctx, newPods(1, "p"))
	assert.ErrorIs(t, err, broken)
}

func TestHoldForgetsPodsThatAreGone(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(epoch)
	hold := NewHold(&chain{}, NewArrivals(clk), &Gangs{}, clk, time.Second)
	ctx, _, _ := newContext(nil, nil)
	for _, at := range []time.Duration{0, time.Second} {
		clk.SetTime(epoch.Add(at))
		_, err := hold.Process(ctx, newPods(3, "p"))
		require.NoError(t, err)
	}
	_, err := hold.Process(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, hold.arrived)
	assert.Empty(t, hold.settled)
}

func TestScaleUpEnforcer(t *testing.T) {
	assert.False(t, ScaleUpEnforcer{}.ShouldForceScaleUp(nil))
	assert.True(t, ScaleUpEnforcer{}.ShouldForceScaleUp(newPods(1, "p")))
}
