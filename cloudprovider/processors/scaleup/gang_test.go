package scaleup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// in returns the offering as one of at most so many nodes in the zone, with GPUs of the model. Either is not known beforehand if it is empty.
func (o offered) in(zone, model string, most int) offered {
	o.max, o.node = most, o.node.DeepCopy()
	delete(o.node.Labels, apiv1.LabelTopologyZone)
	if zone != "" {
		o.node.Labels[apiv1.LabelTopologyZone] = zone
	}
	if model != "" {
		o.node.Labels[api.LabelGPUModel] = model
	}
	return o
}

func anyZone(pod *apiv1.Pod) { pod.Annotations[api.AnnotationGangZones] = api.GangZonesAny }

func TestAGangThatNoOfferingHasRoomForIsBoughtOfSeveral(t *testing.T) {
	cpu := offered{price: 1, max: 9, node: testutil.NewNode("cpu", "cpu", "32", "memory", "64Gi", "pods", "64")}.in("a", "", 9)
	mpi := func(launcherCPUs string) []*apiv1.Pod {
		launcher := testutil.NewPods(1, "launcher", testutil.InGang("g", 5), testutil.WithoutGPU, testutil.Requesting("cpu", launcherCPUs))
		return append(launcher, testutil.NewPods(4, "worker", testutil.InGang("g", 5), testutil.Requesting("cpu", "4"))...)
	}
	large, small := mpi("20"), mpi("14")
	sixteen, eight := testutil.NewPods(16, "p", testutil.InGang("g", 16)), testutil.NewPods(8, "p", testutil.InGang("g", 8))
	spread := testutil.NewPods(8, "p", testutil.InGang("g", 8), anyZone)
	for name, test := range map[string]struct {
		of     catalogue
		pods   []*apiv1.Pod
		bought map[string]int
		told   string
	}{
		"a launcher without GPUs and its workers": {
			of:   catalogue{"gpu": offer("gpu", 4, "1").in("a", "A10", 10), "cpu": cpu},
			pods: large, bought: map[string]int{"gpu": 4, "cpu": 1},
		},
		"a launcher that a node with GPUs would have room for": {
			of:   catalogue{"gpu": offer("gpu", 4, "1").in("a", "A10", 10), "cpu": cpu},
			pods: small, bought: map[string]int{"gpu": 4, "cpu": 1},
		},
		"a launcher in the zone of its workers, dearer as it is": {
			of: catalogue{
				"gpu": offer("gpu", 4, "1").in("b", "A10", 10), "cpu": cpu,
				"cpu-b": offered{price: 2, node: cpu.node}.in("b", "", 9),
			},
			pods: large, bought: map[string]int{"gpu": 4, "cpu-b": 1},
		},
		"sixteen nodes over two pools of ten": {
			of:   catalogue{"one": offer("one", 4, "1").in("a", "A10", 10), "other": offer("other", 5, "1").in("a", "A10", 10)},
			pods: sixteen, bought: map[string]int{"one": 10, "other": 6},
		},
		"the zone that costs less": {
			of: catalogue{
				"a1": offer("a1", 4, "1").in("a", "A10", 10), "a2": offer("a2", 9, "1").in("a", "A10", 10),
				"b1": offer("b1", 5, "1").in("b", "A10", 10), "b2": offer("b2", 6, "1").in("b", "A10", 10),
			},
			pods: sixteen, bought: map[string]int{"b1": 10, "b2": 6},
		},
		"two zones where the job allows it": {
			of:   catalogue{"a": offer("a", 4, "1").in("a", "A10", 5), "b": offer("b", 4, "1").in("b", "A10", 3)},
			pods: spread, bought: map[string]int{"a": 5, "b": 3},
		},
		"two zones where it does not": {
			of:   catalogue{"a": offer("a", 4, "1").in("a", "A10", 5), "b": offer("b", 4, "1").in("b", "A10", 3)},
			pods: eight, bought: map[string]int{},
			told: "Warning SpotGangDoesNotFit Gang ml/g is not bought for: what can be bought now has room for 5 of its 8 GPUs in zone a with GPUs of model A10. " +
				"With the annotation gpu-spot.autoscaling/gang-zones=any they may be placed in several zones",
		},
		"not two models of GPU": {
			of:   catalogue{"a": offer("a", 4, "1").in("a", "A10", 5), "b": offer("b", 4, "1").in("a", "V100", 6)},
			pods: spread, bought: map[string]int{},
			told: "Warning SpotGangDoesNotFit Gang ml/g is not bought for: what can be bought now has room for 6 of its 8 GPUs with GPUs of model V100",
		},
		"nodes in a zone for sure": {
			of: catalogue{
				"whole": offer("whole", 1, "1").in("", "A10", 4), "b": offer("b", 4, "1").in("b", "A10", 10),
				"b2": offer("b2", 5, "1").in("b", "A10", 10), "c": offer("c", 2, "1").in("c", "A10", 8),
			},
			pods: sixteen, bought: map[string]int{"b": 10, "b2": 6},
		},
		"not a pool whose nodes may be in any zone": {
			of:   catalogue{"whole": offer("whole", 1, "1").in("", "A10", 4), "b": offer("b", 4, "1").in("b", "A10", 6)},
			pods: eight, bought: map[string]int{},
			told: "Warning SpotGangDoesNotFit Gang ml/g is not bought for: what can be bought now has room for 6 of its 8 GPUs in zone b with GPUs of model A10. " +
				"With the annotation gpu-spot.autoscaling/gang-zones=any they may be placed in several zones",
		},
		"a pool whose nodes may be in any zone, where the job allows it": {
			of:   catalogue{"whole": offer("whole", 1, "1").in("", "A10", 4), "b": offer("b", 4, "1").in("b", "A10", 6)},
			pods: spread, bought: map[string]int{"b": 6, "whole": 2},
		},
		"not a pool whose nodes may have GPUs of any model": {
			of:   catalogue{"whole": offer("whole", 1, "1").in("a", "", 6), "a": offer("a", 4, "1").in("a", "A10", 5)},
			pods: eight, bought: map[string]int{},
			told: "Warning SpotGangDoesNotFit Gang ml/g is not bought for: what can be bought now has room for 5 of its 8 GPUs in zone a with GPUs of model A10",
		},
		"not without the launcher": {
			of:   catalogue{"gpu": offer("gpu", 4, "1").in("b", "A10", 10), "cpu": cpu},
			pods: large, bought: map[string]int{},
			told: "Warning SpotGangDoesNotFit Gang ml/g is not bought for: what can be bought now has room for 4 of its 5 pods in zone b with GPUs of model A10. " +
				"With the annotation gpu-spot.autoscaling/gang-zones=any they may be placed in several zones",
		},
	} {
		for _, byPrice := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				core := newRealCore(t, test.of, missing{"ml/g": len(test.pods)}, byPrice)
				recorder := record.NewFakeRecorder(100)
				core.ctx.Recorder = recorder
				_, result := core.loop(test.pods)
				assert.Equal(t, test.bought, core.bought)
				if test.told != "" {
					assert.Equal(t, status.ScaleUpNoOptionsAvailable, result.Result)
					require.Len(t, recorder.Events, len(test.pods), "one for each pod")
					assert.Equal(t, test.told, <-recorder.Events)
					core.loop(test.pods)
					assert.Len(t, recorder.Events, len(test.pods)-1, "nothing is told twice")
					return
				}
				assert.Equal(t, status.ScaleUpSuccessful, result.Result)
				assert.Len(t, result.ScaleUpInfos, 2)
				assert.ElementsMatch(t, testutil.Names(test.pods), testutil.Names(result.PodsTriggeredScaleUp))
				assert.Equal(t, 1, core.bundles.committed)
				left, _ := core.loop(test.pods)
				assert.Empty(t, left, "all of them have a place")
				assert.Equal(t, test.bought, core.bought, "nothing is bought twice")
			})
		}
	}
}

func TestAGangOfWhichCoreWillNotBuyAPartIsNotBoughtFor(t *testing.T) {
	core := newRealCore(t, catalogue{"one": offer("one", 4, "1").in("a", "A10", 10), "other": offer("other", 5, "1").in("a", "A10", 10)}, missing{"ml/g": 16}, true)
	core.limitCores(12 * 16)
	pods := testutil.NewPods(16, "p", testutil.InGang("g", 16))
	_, result := core.loop(pods)
	assert.Equal(t, status.ScaleUpNoOptionsAvailable, result.Result)
	assert.Empty(t, core.bought)
	assert.Equal(t, []int{0, 1}, []int{core.bundles.committed, core.bundles.dropped})
	core.limitCores(1e6)
	_, result = core.loop(pods)
	assert.Equal(t, status.ScaleUpSuccessful, result.Result)
	assert.Equal(t, map[string]int{"one": 10, "other": 6}, core.bought)
}
