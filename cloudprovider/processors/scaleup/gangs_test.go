package scaleup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/gangplan"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// inner stands for core's orchestrator. It records its calls as "pod,pod" with "!" behind where it is all or nothing.
type inner struct {
	calls []string
	// room is the most pods that a call can find an option for; of those in buys it buys, of those in fails it errs.
	room  int
	fails string
	// each call takes this long.
	takes time.Duration
	clock *testingclock.FakePassiveClock
	ctx   *cacontext.AutoscalingContext
}

func (o *inner) Initialize(ctx *cacontext.AutoscalingContext, _ *caprocessors.AutoscalingProcessors,
	_ *clusterstate.ClusterStateRegistry, _ estimator.EstimatorBuilder, _ taints.TaintConfig) {
	o.ctx = ctx
}

func (o *inner) ScaleUp(pods []*apiv1.Pod, _ []*apiv1.Node, _ []*appsv1.DaemonSet, _ map[string]*framework.NodeInfo,
	allOrNothing bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	call := strings.Join(testutil.Names(pods), ",")
	if allOrNothing {
		call += "!"
	}
	o.calls = append(o.calls, call)
	o.ctx.ProvisioningRequestScaleUpMode = !o.ctx.ProvisioningRequestScaleUpMode
	o.clock.SetTime(o.clock.Now().Add(o.takes))
	if o.fails != "" && strings.HasPrefix(call, o.fails) {
		return &status.ScaleUpStatus{Result: status.ScaleUpError}, errors.NewAutoscalerError(errors.CloudProviderError, "failed")
	}
	if len(pods) <= o.room {
		return &status.ScaleUpStatus{Result: status.ScaleUpSuccessful, PodsTriggeredScaleUp: pods}, nil
	}
	result := &status.ScaleUpStatus{Result: status.ScaleUpNoOptionsAvailable}
	for _, pod := range pods {
		result.PodsRemainUnschedulable = append(result.PodsRemainUnschedulable, status.NoScaleUpInfo{Pod: pod})
	}
	return result, nil
}

func (o *inner) ScaleUpToNodeGroupMinSize([]*apiv1.Node, map[string]*framework.NodeInfo) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return nil, nil
}

// sends are the numbers of calls that were made before what they bought was sent.
type sends struct {
	Purchases
	core  *inner
	after []int
}

func (s *sends) Gather(buy func(send func())) {
	send := func() { s.after = append(s.after, len(s.core.calls)) }
	buy(send)
	send()
}

// noPlans finds no plan for any gang.
type noPlans struct{}

func (noPlans) Initialize(*cacontext.AutoscalingContext, *clusterstate.ClusterStateRegistry, estimator.EstimatorBuilder) {
}

func (noPlans) Plan(gangplan.Request) ([]gangplan.Part, error) {
	return nil, &gangplan.ImpossibleError{}
}

func newOrchestrator(members missing) (*Gangs, *inner) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	core := &inner{clock: clk}
	o := NewGangs(core, GangsConfig{Members: members, Places: podlist.NewPlaces(), Clock: clk, Planner: noPlans{}, Purchases: &sends{core: core},
		Apart: func(pods []*apiv1.Pod) (onDemand, others []*apiv1.Pod) { return nil, pods }, AllowSpot: func([]*apiv1.Pod, func()) {}})
	ctx, _, _ := testutil.NewContext(nil, nil)
	o.Initialize(ctx, nil, nil, nil, taints.TaintConfig{})
	return o, core
}

func valued(value string) testutil.PodOption {
	return testutil.Annotated(api.AnnotationValueOfTime, value)
}

func TestGangsAreBoughtForOneByOne(t *testing.T) {
	cpu := testutil.NewPods(2, "cpu", testutil.WithoutGPU)
	plain, a, b := testutil.NewPods(2, "p"), testutil.NewPods(3, "a", testutil.InGang("a", 3)), testutil.NewPods(4, "b", testutil.InGang("b", 2))
	tests := map[string]struct {
		pods    []*apiv1.Pod
		missing missing
		room    int
		calls   []string
		result  status.ScaleUpResult
		remain  int
		await   []string
	}{
		"without gangs it is core's own": {
			pods: plain, room: 9, calls: []string{"p-0,p-1"}, result: status.ScaleUpSuccessful,
		},
		"a gang is bought for alone, all or nothing": {
			pods: slices.Concat(plain, a), missing: missing{"ml/a": 3}, room: 9,
			calls: []string{"a-0,a-1,a-2!"}, result: status.ScaleUpSuccessful, await: []string{"p-0", "p-1"},
		},
		"a gang that has its minimum is ordinary": {
			pods: slices.Concat(plain, a), room: 9,
			calls: []string{"a-0,a-1,a-2,p-0,p-1"}, result: status.ScaleUpSuccessful,
		},
		"a gang that fits nowhere does not keep others from being bought for": {
			pods: slices.Concat(plain, a), missing: missing{"ml/a": 3}, room: 2,
			calls: []string{"a-0,a-1,a-2!", "p-0,p-1"}, result: status.ScaleUpSuccessful, remain: 3,
		},
		"a gang that fits nowhere whole is content with its minimum": {
			pods: b, missing: missing{"ml/b": 2}, room: 2,
			calls: []string{"b-0,b-1,b-2,b-3!", "b-0,b-1!"}, result: status.ScaleUpSuccessful, await: []string{"b-2", "b-3"},
		},
		"pods that ask for GPUs and pods that do not are bought for apart, GPUs first": {
			pods: slices.Concat(cpu, plain), room: 9, calls: []string{"p-0,p-1"}, result: status.ScaleUpSuccessful, await: []string{"cpu-0", "cpu-1"},
		},
		"GPU pods that fit nowhere do not keep CPU pods from being bought for": {
			pods: slices.Concat(cpu, testutil.NewPods(3, "p")), room: 2, calls: []string{"p-0,p-1,p-2", "cpu-0,cpu-1"}, result: status.ScaleUpSuccessful, remain: 3,
		},
		"pods whose time is worth something else are bought for apart": {
			pods:  slices.Concat(plain, testutil.NewPods(2, "v", valued("20")), testutil.NewPods(1, "w", valued("20.0")), testutil.NewPods(1, "x", valued("3")), testutil.NewPods(1, "y", valued("much"))),
			calls: []string{"p-0,p-1,y-0", "v-0,v-1,w-0", "x-0"}, result: status.ScaleUpNoOptionsAvailable, remain: 7,
		},
		"a gang of which core has hidden pods is not bought in pieces": {
			pods: slices.Concat(plain, a[:2]), missing: missing{"ml/a": 3}, room: 9,
			calls: []string{"p-0,p-1"}, result: status.ScaleUpSuccessful, await: []string{"a-0", "a-1"},
		},
		"nothing is tried where core has hidden some of the only gang": {
			pods: a[:2], missing: missing{"ml/a": 3}, room: 9,
			result: status.ScaleUpNotTried, await: []string{"a-0", "a-1"},
		},
		"where nothing fits all pods are reported": {
			pods: slices.Concat(plain, a), missing: missing{"ml/a": 3}, room: 1,
			calls: []string{"a-0,a-1,a-2!", "p-0,p-1"}, result: status.ScaleUpNoOptionsAvailable, remain: 5,
		},
		"pods of a ProvisioningRequest are left to its orchestrator": {
			pods:    testutil.NewPods(2, "pr", testutil.InGang("a", 3), testutil.WithoutGPU, testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "r")),
			missing: missing{"ml/a": 3}, room: 9, calls: []string{"pr-0,pr-1"}, result: status.ScaleUpSuccessful,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o, core := newOrchestrator(test.missing)
			core.room = test.room
			result, err := o.ScaleUp(test.pods, nil, nil, nil, false)
			require.Nil(t, err)
			assert.Equal(t, test.calls, core.calls)
			assert.Equal(t, test.result, result.Result)
			assert.Len(t, result.PodsRemainUnschedulable, test.remain)
			assert.ElementsMatch(t, test.await, testutil.Names(result.PodsAwaitEvaluation))
		})
	}
}

func TestGPUPodsAndCPUPodsTakeTurns(t *testing.T) {
	o, core := newOrchestrator(nil)
	core.room = 9
	for range 4 {
		_, err := o.ScaleUp(append(testutil.NewPods(1, "cpu", testutil.WithoutGPU), testutil.NewPods(1, "gpu")...), nil, nil, nil, false)
		require.Nil(t, err)
	}
	assert.Equal(t, []string{"gpu-0", "cpu-0", "gpu-0", "cpu-0"}, core.calls)
}

func TestGangsTakeTurns(t *testing.T) {
	pods, members := testutil.NewPods(1, "p"), missing{}
	for _, gang := range []string{"a", "b"} {
		pods = append(pods, testutil.NewPods(2, gang, testutil.InGang(gang, 2))...)
		members["ml/"+gang] = 2
	}
	o, core := newOrchestrator(members)
	core.room = 9 // each loop buys for whoever comes first
	for range 6 {
		_, err := o.ScaleUp(pods, nil, nil, nil, false)
		require.Nil(t, err)
	}
	assert.Equal(t, core.calls[:3], core.calls[3:])
	assert.ElementsMatch(t, []string{"a-0,a-1!", "b-0,b-1!", "p-0"}, core.calls[:3])
}

func TestPurchasesOfALoopAreSentTogetherOnceASecond(t *testing.T) {
	o, core := newOrchestrator(missing{"ml/a": 2, "ml/b": 2, "ml/c": 2, "ml/d": 2, "ml/e": 2})
	core.takes = 400 * time.Millisecond // and buys nothing, so that all gangs have a turn in the loop
	var pods []*apiv1.Pod
	for _, gang := range []string{"a", "b", "c", "d", "e"} {
		pods = append(pods, testutil.NewPods(2, gang, testutil.InGang(gang, 2))...)
	}
	_, err := o.ScaleUp(pods, nil, nil, nil, false)
	require.Nil(t, err)
	sent := o.config.Purchases.(*sends)
	assert.Equal(t, []int{3, 5}, sent.after)
}

func TestHopelessGangsDoNotTakeTheWholeLoop(t *testing.T) {
	var pods []*apiv1.Pod
	members := missing{}
	for i := range 10 {
		gang := fmt.Sprintf("g%d", i)
		pods = append(pods, testutil.NewPods(2, gang, testutil.InGang(gang, 2))...)
		members["ml/"+gang] = 2
	}
	o, core := newOrchestrator(members)
	core.takes = 2 * time.Second
	for range 4 {
		result, err := o.ScaleUp(pods, nil, nil, nil, false)
		require.Nil(t, err)
		assert.Equal(t, 20, len(result.PodsRemainUnschedulable)+len(result.PodsAwaitEvaluation))
	}
	assert.Len(t, core.calls, 12, "three in each loop")
	slices.Sort(core.calls[:10])
	assert.Len(t, slices.Compact(core.calls[:10]), 10, "every gang has its turn before any has its second")
}

func TestErrorOfAGangEndsTheLoopAndGivesOthersTheNext(t *testing.T) {
	o, core := newOrchestrator(missing{"ml/a": 2})
	core.room, core.fails = 9, "a-"
	pods := slices.Concat(testutil.NewPods(2, "a", testutil.InGang("a", 2)), testutil.NewPods(1, "p"))
	result, err := o.ScaleUp(pods, nil, nil, nil, false)
	require.NotNil(t, err)
	assert.Equal(t, status.ScaleUpError, result.Result)
	_, err = o.ScaleUp(pods, nil, nil, nil, false)
	require.Nil(t, err)
	assert.Equal(t, []string{"a-0,a-1!", "p-0"}, core.calls)
}

func TestGangsAndCPUPodsDoNotDisturbTheTurnsOfProvisioningRequests(t *testing.T) {
	o, _ := newOrchestrator(missing{"ml/a": 2})
	for _, pods := range [][]*apiv1.Pod{testutil.NewPods(2, "a", testutil.InGang("a", 2)), testutil.NewPods(2, "cpu", testutil.WithoutGPU)} {
		for _, mode := range []bool{true, false} {
			o.autoscaling.ProvisioningRequestScaleUpMode = mode
			_, err := o.ScaleUp(pods, nil, nil, nil, false)
			require.Nil(t, err)
			assert.Equal(t, mode, o.autoscaling.ProvisioningRequestScaleUpMode)
		}
	}
}
