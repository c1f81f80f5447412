package scaleup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// gangsOf returns the pods of so many gangs, each of so many pods with a GPU.
func gangsOf(gangs, size int) (pods []*apiv1.Pod, members missing) {
	members = missing{}
	for i := range gangs {
		name := fmt.Sprintf("g%02d", i)
		pods = append(pods, testutil.NewPods(size, name, testutil.InGang(name, size))...)
		members["ml/"+name] = size
	}
	return pods, members
}

func nodesBought(c *realCore) (nodes int) {
	for _, n := range c.bought {
		nodes += n
	}
	return nodes
}

func TestAllGangsAreBoughtForInOneLoop(t *testing.T) {
	pods, members := gangsOf(20, 2)
	plain := testutil.NewPods(3, "plain")
	core := newRealCore(t, catalogue{"single": offer("single", 4, "1"), "eight": offer("eight", 90, "8")}, members, true)
	_, result := core.loop(slices.Concat(pods, plain))
	assert.Equal(t, status.ScaleUpSuccessful, result.Result)
	assert.Empty(t, result.PodsAwaitEvaluation)
	assert.Equal(t, map[string]int{"single": 43}, core.bought)

	left, _ := core.loop(slices.Concat(pods, plain))
	assert.Empty(t, left)
	assert.Equal(t, 43, nodesBought(core), "nothing is bought twice")
}

func TestPodsOfSeveralOfferingsKeepThePlacesThatWereBoughtForThem(t *testing.T) {
	eight, urgent := testutil.Requesting("nvidia.com/gpu", "8"), func(pod *apiv1.Pod) { pod.Spec.Priority = ptr.To[int32](9) }
	big := offer("big", 9, "1")
	big.node.Status.Allocatable[apiv1.ResourceCPU] = resource.MustParse("64")
	for name, test := range map[string]struct {
		offerings    catalogue
		small, large []*apiv1.Pod
	}{
		"more GPUs": {
			catalogue{"one": offer("one", 4, "1"), "eight": offer("eight", 90, "8")},
			testutil.NewPods(3, "small"), testutil.NewPods(2, "large", eight),
		},
		"more GPUs, less urgent": {
			catalogue{"one": offer("one", 4, "1"), "eight": offer("eight", 90, "8")},
			testutil.NewPods(3, "small", urgent), testutil.NewPods(2, "large", eight),
		},
		"more CPUs": {
			catalogue{"one": offer("one", 4, "1"), "big": big},
			testutil.NewPods(3, "small"), testutil.NewPods(2, "large", testutil.Requesting(string(apiv1.ResourceCPU), "48")),
		},
	} {
		for _, pods := range [][]*apiv1.Pod{slices.Concat(test.small, test.large), slices.Concat(test.large, test.small)} {
			t.Run(name, func(t *testing.T) {
				core := newRealCore(t, test.offerings, missing{}, true)
				_, result := core.loop(pods)
				require.Equal(t, status.ScaleUpSuccessful, result.Result)
				require.Empty(t, result.PodsAwaitEvaluation)
				bought := maps.Clone(core.bought)
				require.Len(t, bought, 2, "both in the first loop")
				for range 3 {
					left, _ := core.loop(pods)
					assert.Empty(t, left)
				}
				assert.Equal(t, bought, core.bought)
			})
		}
	}
}

func TestNothingIsBoughtForPodsThatFitTheNodesBoughtForOthers(t *testing.T) {
	eight := catalogue{"eight": offer("eight", 90, "8")}
	gang, members := gangsOf(1, 4)
	for name, test := range map[string]struct {
		before *apiv1.Pod
		pods   []*apiv1.Pod
		nodes  int
	}{
		"the gang fits whole":              {testutil.NewPod("a", testutil.Requesting("nvidia.com/gpu", "4")), gang, 1},
		"none of the gang fits":            {testutil.NewPod("a", testutil.Requesting("nvidia.com/gpu", "8")), gang, 2},
		"some fit, and the gang waits":     {testutil.NewPod("a", testutil.Requesting("nvidia.com/gpu", "6")), gang, 1},
		"other pods are placed one by one": {testutil.NewPod("a", testutil.Requesting("nvidia.com/gpu", "6")), testutil.NewPods(3, "cpu", testutil.WithoutGPU), 1},
	} {
		t.Run(name, func(t *testing.T) {
			core := newRealCore(t, eight, members, true)
			core.orchestrator.lastTurn = map[string]int{"ml/g00": 2, gpuPods: 1, cpuPods: 2}
			_, result := core.loop(append([]*apiv1.Pod{test.before}, test.pods...))
			assert.Equal(t, test.nodes, nodesBought(core))
			if test.nodes == 1 {
				assert.ElementsMatch(t, test.pods, result.PodsAwaitEvaluation)
			} else {
				assert.Empty(t, result.PodsAwaitEvaluation)
			}
			assert.Empty(t, result.PodsRemainUnschedulable)
		})
	}
}

func TestPurchasesOfOneLoopRespectTheLimitOfNodesTogether(t *testing.T) {
	for limit, nodes := range map[int]int{4: 4, 5: 4, 6: 6} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			pods, members := gangsOf(4, 2)
			core := newRealCore(t, catalogue{"single": offer("single", 4, "1")}, members, true)
			core.ctx.MaxNodesTotal = limit
			_, result := core.loop(pods)
			assert.Equal(t, nodes, nodesBought(core))
			assert.Equal(t, status.ScaleUpSuccessful, result.Result, "the purchases stand")
			assert.Len(t, result.PodsTriggeredScaleUp, 2)
		})
	}
}

func TestPodsAreToldOfTheirOwnPurchaseOnly(t *testing.T) {
	pods, members := gangsOf(3, 2)
	core := newRealCore(t, catalogue{"single": offer("single", 4, "1")}, members, true)
	recorder := record.NewFakeRecorder(100)
	core.ctx.Recorder = recorder
	core.orchestrator.processors.ScaleUpStatusProcessor = &status.EventingScaleUpStatusProcessor{}
	_, result := core.loop(pods)
	core.orchestrator.report(result) // as core does
	close(recorder.Events)
	var sizes []string
	for event := range recorder.Events {
		require.Contains(t, event, "TriggeredScaleUp")
		_, size, _ := strings.Cut(event, "[{single ")
		sizes = append(sizes, size)
	}
	assert.Equal(t, []string{
		"0->2 (max: 200)}]", "0->2 (max: 200)}]", "2->4 (max: 200)}]", "2->4 (max: 200)}]", "4->6 (max: 200)}]", "4->6 (max: 200)}]",
	}, sizes)
}
