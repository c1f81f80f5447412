package processors

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
	call := strings.Join(names(pods), ",")
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

func newOrchestrator(missing map[string]int) (*GangOrchestrator, *inner) {
	clk := testingclock.NewFakePassiveClock(epoch)
	core := &inner{clock: clk}
	o := NewGangOrchestrator(core, &Gangs{missing: missing}, clk)
	ctx, _, _ := newContext(nil, nil)
	o.Initialize(ctx, nil, nil, nil, taints.TaintConfig{})
	return o, core
}

func TestGangOrchestratorBuysInPieces(t *testing.T) {
	cpu := newPods(2, "cpu", withoutGPU)
	plain, a, b := newPods(2, "p"), newPods(3, "a", inGang("a", 3)), newPods(4, "b", inGang("b", 2))
	tests := map[string]struct {
		pods    []*apiv1.Pod
		missing map[string]int
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
			pods: slices.Concat(plain, a), missing: map[string]int{"ml/a": 3}, room: 9,
			calls: []string{"a-0,a-1,a-2!"}, result: status.ScaleUpSuccessful, await: []string{"p-0", "p-1"},
		},
		"a gang that has its minimum is ordinary": {
			pods: slices.Concat(plain, a), room: 9,
			calls: []string{"a-0,a-1,a-2,p-0,p-1"}, result: status.ScaleUpSuccessful,
		},
		"a gang that fits nowhere does not keep others from being bought for": {
			pods: slices.Concat(plain, a), missing: map[string]int{"ml/a": 3}, room: 2,
			calls: []string{"a-0,a-1,a-2!", "p-0,p-1"}, result: status.ScaleUpSuccessful, remain: 3,
		},
		"a gang that fits nowhere whole is content with its minimum": {
			pods: b, missing: map[string]int{"ml/b": 2}, room: 2,
			calls: []string{"b-0,b-1,b-2,b-3!", "b-0,b-1!"}, result: status.ScaleUpSuccessful, await: []string{"b-2", "b-3"},
		},
		"pods that ask for GPUs and pods that do not are bought for apart, GPUs first": {
			pods: slices.Concat(cpu, plain), room: 9, calls: []string{"p-0,p-1"}, result: status.ScaleUpSuccessful, await: []string{"cpu-0", "cpu-1"},
		},
		"GPU pods that fit nowhere do not keep CPU pods from being bought for": {
			pods: slices.Concat(cpu, newPods(3, "p")), room: 2, calls: []string{"p-0,p-1,p-2", "cpu-0,cpu-1"}, result: status.ScaleUpSuccessful, remain: 3,
		},
		"a gang of which core has hidden pods is not bought in pieces": {
			pods: slices.Concat(plain, a[:2]), missing: map[string]int{"ml/a": 3}, room: 9,
			calls: []string{"p-0,p-1"}, result: status.ScaleUpSuccessful, await: []string{"a-0", "a-1"},
		},
		"nothing is tried where core has hidden some of the only gang": {
			pods: a[:2], missing: map[string]int{"ml/a": 3}, room: 9,
			result: status.ScaleUpNotTried, await: []string{"a-0", "a-1"},
		},
		"where nothing fits all pods are reported": {
			pods: slices.Concat(plain, a), missing: map[string]int{"ml/a": 3}, room: 1,
			calls: []string{"a-0,a-1,a-2!", "p-0,p-1"}, result: status.ScaleUpNoOptionsAvailable, remain: 5,
		},
		"pods of a ProvisioningRequest are left to its orchestrator": {
			pods:    newPods(2, "pr", inGang("a", 3), withoutGPU, annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "r")),
			missing: map[string]int{"ml/a": 3}, room: 9, calls: []string{"pr-0,pr-1"}, result: status.ScaleUpSuccessful,
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
			assert.ElementsMatch(t, test.await, names(result.PodsAwaitEvaluation))
		})
	}
}

func TestGPUPodsAndCPUPodsTakeTurns(t *testing.T) {
	o, core := newOrchestrator(nil)
	core.room = 9
	for range 4 {
		_, err := o.ScaleUp(append(newPods(1, "cpu", withoutGPU), newPods(1, "gpu")...), nil, nil, nil, false)
		require.Nil(t, err)
	}
	assert.Equal(t, []string{"gpu-0", "cpu-0", "gpu-0", "cpu-0"}, core.calls)
}

func TestGangsTakeTurns(t *testing.T) {
	pods, missing := newPods(1, "p"), map[string]int{}
	for _, gang := range []string{"a", "b"} {
		pods = append(pods, newPods(2, gang, inGang(gang, 2))...)
		missing["ml/"+gang] = 2
	}
	o, core := newOrchestrator(missing)
	core.room = 9 // each loop buys for whoever comes first
	for range 6 {
		_, err := o.ScaleUp(pods, nil, nil, nil, false)
		require.Nil(t, err)
	}
	assert.Equal(t, core.calls[:3], core.calls[3:])
	assert.ElementsMatch(t, []string{"a-0,a-1!", "b-0,b-1!", "p-0"}, core.calls[:3])
}

func TestHopelessGangsDoNotTakeTheWholeLoop(t *testing.T) {
	var pods []*apiv1.Pod
	missing := map[string]int{}
	for i := range 10 {
		gang := fmt.Sprintf("g%d", i)
		pods = append(pods, newPods(2, gang, inGang(gang, 2))...)
		missing["ml/"+gang] = 2
	}
	o, core := newOrchestrator(missing)
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
	o, core := newOrchestrator(map[string]int{"ml/a": 2})
	core.room, core.fails = 9, "a-"
	pods := slices.Concat(newPods(2, "a", inGang("a", 2)), newPods(1, "p"))
	result, err := o.ScaleUp(pods, nil, nil, nil, false)
	require.NotNil(t, err)
	assert.Equal(t, status.ScaleUpError, result.Result)
	_, err = o.ScaleUp(pods, nil, nil, nil, false)
	require.Nil(t, err)
	assert.Equal(t, []string{"a-0,a-1!", "p-0"}, core.calls)
}

func TestGangsAndCPUPodsDoNotDisturbTheTurnsOfProvisioningRequests(t *testing.T) {
	o, _ := newOrchestrator(map[string]int{"ml/a": 2})
	for _, pods := range [][]*apiv1.Pod{newPods(2, "a", inGang("a", 2)), newPods(2, "cpu", withoutGPU)} {
		for _, mode := range []bool{true, false} {
			o.autoscaling.ProvisioningRequestScaleUpMode = mode
			_, err := o.ScaleUp(pods, nil, nil, nil, false)
			require.Nil(t, err)
			assert.Equal(t, mode, o.autoscaling.ProvisioningRequestScaleUpMode)
		}
	}
}
