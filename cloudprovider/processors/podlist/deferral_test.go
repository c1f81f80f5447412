package podlist

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
	"k8s.io/autoscaler/cluster-autoscaler/config"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaledown"
	coretest "k8s.io/autoscaler/cluster-autoscaler/core/test"
	"k8s.io/autoscaler/cluster-autoscaler/processors/callbacks"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// chain stands for core's processors: it takes away pods that fit existing nodes and may add some of its own.
type chain struct {
	fits []string
	adds []*apiv1.Pod
	err  error
	// asked are the pods of the last loop.
	asked []string
}

func (c *chain) Process(_ *cacontext.AutoscalingContext, pods []*apiv1.Pod) ([]*apiv1.Pod, error) {
	c.asked = testutil.Names(pods)
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
	first, second, other := testutil.NewPod("first"), testutil.NewPod("second"), testutil.NewPod("other", testutil.Selecting("gpu", "a10"))
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
		"a settled pod is not deferred again by a later one": {
			arrivals: map[time.Duration]*apiv1.Pod{0: first, 1100 * time.Millisecond: second},
			loops: []loop{
				{at: window, pending: []*apiv1.Pod{first}, released: []string{"first"}},
				{at: 1200 * time.Millisecond, pending: []*apiv1.Pod{first, second}, released: []string{"first"}, wake: 2100 * time.Millisecond},
			},
		},
		"pods without GPUs pass at once": {
			loops: []loop{{pending: []*apiv1.Pod{testutil.NewPod("cpu", testutil.WithoutGPU)}, released: []string{"cpu"}}},
		},
		"shared GPUs settle like whole ones": {
			loops: []loop{{pending: []*apiv1.Pod{testutil.NewPod("shared", testutil.WithoutGPU, testutil.Requesting("aliyun.com/gpu-mem", "4"))}, released: []string{}, wake: window}},
		},
		"pods of a ProvisioningRequest pass at once": {
			loops: []loop{{pending: []*apiv1.Pod{testutil.NewPod("pr", testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "r"))}, released: []string{"pr"}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			arrivals := NewArrivals(clk)
			deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: window})
			for _, loop := range test.loops {
				for after, pod := range test.arrivals {
					if clk.SetTime(testutil.Epoch.Add(after)); after <= loop.at {
						arrivals.Note(pod)
					}
				}
				clk.SetTime(testutil.Epoch.Add(loop.at))
				ctx, called, _ := testutil.NewContext(nil, nil)
				released, err := deferral.Process(ctx, loop.pending)
				require.NoError(t, err)
				assert.ElementsMatch(t, loop.released, testutil.Names(released), "released at %v", loop.at)
				assert.False(t, called.ScaleDownDisabledForLoop)
				if loop.wake == 0 {
					assert.Zero(t, deferral.NextWake())
				} else {
					assert.Equal(t, testutil.Epoch.Add(loop.wake), deferral.NextWake())
				}
			}
		})
	}
}

func TestABurstSettlesAsFastAsItsPodsCome(t *testing.T) {
	const window = time.Second
	for name, test := range map[string]struct {
		pods int
		gap  time.Duration
		want time.Duration
	}{
		"a job of eight":               {8, 3 * time.Millisecond, window},
		"a hundred at a stroke":        {100, 0, window / 10},
		"a hundred, fast":              {100, 3 * time.Millisecond, window / 10},
		"a hundred, one after another": {100, 30 * time.Millisecond, 600 * time.Millisecond},
		"forty, throttled at 20 QPS":   {40, 50 * time.Millisecond, window},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			arrivals := NewArrivals(clk)
			deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: window})
			var pending []*apiv1.Pod
			for i := range test.pods {
				clk.SetTime(testutil.Epoch.Add(time.Duration(i) * test.gap))
				pending = append(pending, testutil.NewPod(fmt.Sprintf("pod-%d", i)))
				arrivals.Note(pending[i])
			}
			last := clk.Now()
			ctx, _, _ := testutil.NewContext(nil, nil)
			released, err := deferral.Process(ctx, pending)
			require.NoError(t, err)
			assert.Empty(t, released)
			require.NotZero(t, deferral.NextWake())
			assert.Equal(t, test.want, deferral.NextWake().Sub(last))
		})
	}
}

func TestNextWakeFollowsThePodsThatArriveBetweenLoops(t *testing.T) {
	const window = time.Second
	gated := func(pod *apiv1.Pod) { pod.Spec.SchedulingGates = []apiv1.PodSchedulingGate{{Name: "queue"}} }
	gang := testutil.InGang("gang", 2)
	for name, test := range map[string]struct {
		arrives *apiv1.Pod
		at      time.Duration
		want    time.Duration
	}{
		"another pod of the demand":                     {testutil.NewPod("second"), 600 * time.Millisecond, 1600 * time.Millisecond},
		"a pod of another demand":                       {testutil.NewPod("other", testutil.Requesting("nvidia.com/gpu", "8")), 600 * time.Millisecond, window},
		"a pod that may not be scheduled yet":           {testutil.NewPod("gated", gated), 600 * time.Millisecond, window},
		"a pod without GPUs":                            {testutil.NewPod("cpu", testutil.WithoutGPU), 600 * time.Millisecond, window},
		"a pod of a gang, which does not settle":        {testutil.NewPod("member", gang), 600 * time.Millisecond, window},
		"a pod that arrived before the last loop began": {testutil.NewPod("placed"), -100 * time.Millisecond, window},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			arrivals := NewArrivals(clk)
			deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: window})
			arrive := func() {
				clk.SetTime(testutil.Epoch.Add(test.at))
				arrivals.Note(test.arrives)
			}
			if test.at < 0 {
				arrive()
			}
			clk.SetTime(testutil.Epoch)
			deferral.BeginLoop()
			assert.Zero(t, deferral.NextWake())
			first := testutil.NewPod("first")
			arrivals.Note(first)
			ctx, _, _ := testutil.NewContext(nil, nil)
			_, err := deferral.Process(ctx, []*apiv1.Pod{first})
			require.NoError(t, err)
			assert.Equal(t, window, deferral.NextWake().Sub(testutil.Epoch))
			if test.at > 0 {
				arrive()
			}
			assert.Equal(t, test.want, deferral.NextWake().Sub(testutil.Epoch))
		})
	}
}

func TestPodsOfWhichMoreArriveDuringTheLoopAreDeferredAgain(t *testing.T) {
	const window = time.Second
	for name, test := range map[string]struct {
		waited   time.Duration // before the loop
		arrives  *apiv1.Pod
		reopened bool
	}{
		"another pod of the demand": {window, testutil.NewPod("late"), true},
		"a pod of another demand":   {window, testutil.NewPod("late", testutil.Requesting("nvidia.com/gpu", "8")), false},
		"no pod":                    {window, nil, false},
		"another pod, and the first waited for long":  {5 * window, testutil.NewPod("late"), false},
		"another pod, and the first may wait briefly": {4 * window, testutil.NewPod("late"), true},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			arrivals := NewArrivals(clk)
			deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: window})
			first := testutil.NewPod("first")
			arrivals.Note(first)
			loop := func(pending ...*apiv1.Pod) []string {
				deferral.BeginLoop()
				ctx, _, _ := testutil.NewContext(nil, nil)
				released, err := deferral.Process(ctx, pending)
				require.NoError(t, err)
				return testutil.Names(released)
			}
			clk.SetTime(testutil.Epoch.Add(test.waited))
			require.Equal(t, []string{"first"}, loop(first))
			clk.SetTime(clk.Now().Add(100 * time.Millisecond))
			if test.arrives != nil {
				arrivals.Note(test.arrives)
			}
			arrived := clk.Now()
			clk.SetTime(clk.Now().Add(400 * time.Millisecond))
			assert.Equal(t, test.reopened, len(deferral.Reopen([]*apiv1.Pod{first})) == 0)
			if !test.reopened {
				assert.Equal(t, []string{"first"}, loop(first))
				return
			}
			end := arrived.Add(window)
			if limit := testutil.Epoch.Add(5 * window); limit.Before(end) {
				end = limit
			}
			assert.Empty(t, deferral.Reopen([]*apiv1.Pod{first}), "nor if the rest of its batch has another turn in this loop")
			assert.Equal(t, end, deferral.NextWake())
			assert.Empty(t, loop(first, test.arrives))
			clk.SetTime(end)
			assert.Equal(t, []string{"first", "late"}, loop(first, test.arrives), "they are bought for together")
			assert.Len(t, deferral.Reopen([]*apiv1.Pod{first, test.arrives}), 2)
		})
	}
}

func TestLoopThatEndsBeforeItSeesPodsMakesNoOtherDue(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	arrivals := NewArrivals(clk)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: time.Second})
	pod := testutil.NewPod("first")
	arrivals.Note(pod)
	deferral.BeginLoop()
	ctx, _, _ := testutil.NewContext(nil, nil)
	_, err := deferral.Process(ctx, []*apiv1.Pod{pod})
	require.NoError(t, err)
	require.NotZero(t, deferral.NextWake())
	clk.SetTime(testutil.Epoch.Add(time.Second))
	deferral.BeginLoop() // and a failed refresh ends it
	assert.Zero(t, deferral.NextWake(), "the next comes after the interval, not every 0.25 s")
}

func TestSteadyStreamDoesNotStarve(t *testing.T) {
	const window = time.Second
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	arrivals := NewArrivals(clk)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: window})
	stream := testutil.NewPods(20, "p")
	for i := range stream {
		clk.SetTime(testutil.Epoch.Add(time.Duration(i) * 500 * time.Millisecond))
		arrivals.Note(stream[i])
		ctx, _, _ := testutil.NewContext(nil, nil)
		released, err := deferral.Process(ctx, stream[:i+1])
		require.NoError(t, err)
		if i < 10 {
			assert.Empty(t, released, "after %v", clk.Since(testutil.Epoch))
		} else {
			assert.Contains(t, testutil.Names(released), "p-0", "after %v", clk.Since(testutil.Epoch))
		}
	}
}

func TestGangsAreDeferredUntilComplete(t *testing.T) {
	gang := testutil.NewPods(4, "g", testutil.InGang("g", 4))
	tests := map[string]struct {
		pending, running []*apiv1.Pod
		fits             []string
		released         []string
		missing          int
	}{
		"an incomplete gang is deferred": {
			pending: gang[:3], released: []string{},
		},
		"a complete gang is released without settling": {
			pending: gang, released: []string{"g-0", "g-1", "g-2", "g-3"}, missing: 4,
		},
		"members that run complete the gang": {
			pending: gang[:1], running: testutil.NewPods(3, "r", testutil.InGang("g", 4), testutil.OnNode("n")), released: []string{"g-0"}, missing: 1,
		},
		"members that are being deleted do not": {
			pending:  gang[:1],
			running:  testutil.NewPods(3, "r", testutil.InGang("g", 4), testutil.OnNode("n"), func(pod *apiv1.Pod) { pod.DeletionTimestamp = &pod.CreationTimestamp }),
			released: []string{},
		},
		"a namesake in another namespace does not": {
			pending:  gang[:3],
			running:  testutil.NewPods(1, "r", testutil.InGang("g", 4), testutil.OnNode("n"), func(pod *apiv1.Pod) { pod.Namespace = "other" }),
			released: []string{},
		},
		"members that fit existing nodes complete the gang and are not bought for": {
			pending: gang, fits: []string{"g-0", "g-1"}, released: []string{"g-2", "g-3"}, missing: 2,
		},
		"an incomplete gang is deferred even where some of it fits": {
			pending: gang[:3], fits: []string{"g-0"}, released: []string{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			deferral := NewDeferral(Config{Inner: &chain{fits: test.fits}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second})
			ctx, called, _ := testutil.NewContext(append(test.running, test.pending...), nil)
			released, err := deferral.Process(ctx, slices.Clone(test.pending))
			require.NoError(t, err)
			assert.ElementsMatch(t, test.released, testutil.Names(released))
			assert.False(t, called.ScaleDownDisabledForLoop)
			if test.missing > 0 {
				gang, missing := deferral.Missing(gang[0])
				assert.Equal(t, "ml/g", gang)
				assert.Equal(t, test.missing, missing)
			}
		})
	}
}

// newSimulation is a context in which core's own chain can place pods.
func newSimulation(t *testing.T) *cacontext.AutoscalingContext {
	t.Helper()
	listers := kubeutil.NewListerRegistry(testutil.NodeList(nil), testutil.NodeList(nil), testutil.PodList(nil), nil, nil, nil, nil, nil, nil)
	ctx, err := coretest.NewScaleTestAutoscalingContext(config.AutoscalingOptions{}, &fake.Clientset{}, listers, nil, callbacks.NewTestProcessorCallbacks(), nil)
	require.NoError(t, err)
	ctx.ScaleDownActuator = idleActuator{}
	return &ctx
}

// idleActuator deletes nothing.
type idleActuator struct{ scaledown.Actuator }

func (idleActuator) CheckStatus() scaledown.ActuationStatus { return testutil.Deletions{} }

// Seven of a gang of eight exist; the eighth is never made, because of a quota. Its scheduler binds none of them.
func TestIncompleteGangKeepsNoIdleNodes(t *testing.T) {
	for name, test := range map[string]struct {
		pods []*apiv1.Pod
		used int
	}{
		"an incomplete gang leaves them to scale-down":   {testutil.NewPods(7, "g", testutil.InGang("g", 8), testutil.Replicated), 0},
		"a complete gang uses them":                      {testutil.NewPods(7, "g", testutil.InGang("g", 7), testutil.Replicated), 7},
		"others have the places that it does not occupy": {append(testutil.NewPods(7, "g", testutil.InGang("g", 8), testutil.Replicated), testutil.NewPods(3, "p", testutil.Replicated)...), 3},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*apiv1.Node
			for i := range 7 {
				nodes = append(nodes, testutil.NewNode(fmt.Sprint("idle-", i), "cpu", "8", "memory", "32Gi", "pods", "64", api.ResourceGPU, "1"))
			}
			ctx := newSimulation(t)
			require.NoError(t, ctx.ClusterSnapshot.SetClusterState(nodes, nil, nil))
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			deferral := NewDeferral(Config{Inner: NewDefault(NewPlaces(), nil), Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: 0})
			left, err := deferral.Process(ctx, test.pods)
			require.NoError(t, err)
			assert.Empty(t, left)
			infos, err := ctx.ClusterSnapshot.ListNodeInfos()
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
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second})
	more := testutil.NewPods(2, "more", testutil.InGang("g", 2))
	ctx, _, _ := testutil.NewContext(testutil.NewPods(2, "r", testutil.InGang("g", 2), testutil.OnNode("n")), nil)
	released, err := deferral.Process(ctx, more)
	require.NoError(t, err)
	assert.Empty(t, released)
	clk.SetTime(testutil.Epoch.Add(time.Second))
	released, err = deferral.Process(ctx, more)
	require.NoError(t, err)
	assert.Len(t, released, 2)
	gang, _ := deferral.Missing(more[0])
	assert.Empty(t, gang)
}

func TestMalformedGangIsToldOnceAndTreatedAsOrdinary(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: 0})
	pod := testutil.NewPod("p", testutil.Labelled("gpu-spot.autoscaling/gang-name", "g"))
	ctx, _, recorder := testutil.NewContext(nil, nil)
	for range 3 {
		released, err := deferral.Process(ctx, []*apiv1.Pod{pod})
		require.NoError(t, err)
		assert.Equal(t, []string{"p"}, testutil.Names(released))
	}
	require.Len(t, recorder.Events, 1)
	assert.Contains(t, <-recorder.Events, "Warning SpotGangMalformed")
}

func TestPodsThatTheChainAddsAreNotDeferred(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: &chain{adds: testutil.NewPods(1, "drained", testutil.InGang("g", 4))}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second})
	ctx, _, _ := testutil.NewContext(nil, nil)
	released, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"drained-0"}, testutil.Names(released))
}

func TestChainErrorIsPassedOn(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	broken := errors.New("broken")
	deferral := NewDeferral(Config{Inner: &chain{err: broken}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second})
	ctx, _, _ := testutil.NewContext(nil, nil)
	_, err := deferral.Process(ctx, testutil.NewPods(1, "p"))
	assert.ErrorIs(t, err, broken)
}

func TestHoldForgetsPodsThatAreGone(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second})
	ctx, _, _ := testutil.NewContext(nil, nil)
	for _, at := range []time.Duration{0, time.Second} {
		clk.SetTime(testutil.Epoch.Add(at))
		_, err := deferral.Process(ctx, testutil.NewPods(3, "p"))
		require.NoError(t, err)
	}
	_, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, deferral.settling.arrived)
	assert.Empty(t, deferral.settling.settled)
}
