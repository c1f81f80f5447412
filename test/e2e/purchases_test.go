package e2e

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
	"gpu-spot-autoscaler/test/rig"
)

func TestAGroupWithADesiredCapacityBuysEachNodeOnce(t *testing.T) {
	desired := singleOfferingPool("asg-1", 10)
	desired.DesiredCapacity = ptr.To(0)
	w := newWorld(desired)
	w.ActivityDelay = metav1.Duration{Duration: 5 * time.Second} // the second purchase comes while the first is under way
	s := newSuite(t, w)
	s.RunAutoscaler(t)
	s.awaitEvent("SpotPoolProblem", "desired_capacity", "DisableDesiredCapacity=true")
	first := gpuPods("first", 2)
	s.Submit(t, first...)
	s.eventually("the first purchase is asked for", func(context.Context) (bool, error) { return len(s.requests("ScaleWithAdjustment")) > 0, nil })
	second := gpuPods("second", 1)
	s.Submit(t, second...)
	s.awaitRunning(append(first, second...)...)
	rig.Always(t, 5*time.Second, "there are three and no more", func(context.Context) (bool, error) { return boughtInstances(s) == 3, nil })
}

func TestAMisspeltTagDoesNotHideWhatIsOnItsWay(t *testing.T) {
	misspelt := singleOfferingPool("asg-1", 10)
	w := newWorld(misspelt, rig.SpotPool("asg-dearer", 10, []string{a10}, []string{"vsw-c"}))
	w.ActivityDelay = metav1.Duration{Duration: 8 * time.Second}
	s := newSuite(t, w)
	s.Cloud.SetPrice(a10, zoneC, 9, 10)
	s.RunAutoscaler(t)
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.eventually("the purchase is asked for", func(context.Context) (bool, error) { return len(s.requests("ScaleWithAdjustment")) > 0, nil })
	tags := maps.Clone(misspelt.Tags)
	tags["gpu-spot.autoscaling/max-size"] = "many"
	require.NoError(t, s.Cloud.SetGroupTags("asg-1", tags))
	s.awaitEvent("SpotPoolProblem", "tags", "gpu-spot.autoscaling/max-size", "many")
	s.awaitRunning(pod)
	assert.Equal(t, 1, boughtInstances(s), "and nothing of the dearer pool")
}

func TestAnExpanderOfClusterAutoscalerChoosesAmongAllPools(t *testing.T) {
	const fourA10 = "ecs.gn7i-c32g1.32xlarge"
	s := newSuite(t, newWorld(singleOfferingPool("asg-small", 10), rig.SpotPool("asg-great", 10, []string{fourA10}, []string{"vsw-a"})))
	s.Cloud.SetPrice(fourA10, zoneA, 1, 50) // the cheapest, and most of it would lie idle
	s.RunAutoscaler(t, "--expander=least-waste")
	pod := rig.GPUPod("train", 1)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	s.Submit(t, pod)
	s.awaitRunning(pod)
	assert.Len(t, s.instances("asg-small"), 1)
}

func TestNodesWhoseGPUsHaveAnotherNameAreWaitedForAndBoughtOnce(t *testing.T) {
	named := singleOfferingPool("asg-1", 10)
	named.Tags["k8s.io/cluster-autoscaler/node-template/label/ack.node.gpu.schedule"] = "topology"
	w := newWorld(named)
	w.DriverDelay = metav1.Duration{Duration: 6 * time.Second}
	s := newSuite(t, w)
	s.RunAutoscaler(t)
	pod := rig.GPUPod("train", 1)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"aliyun.com/gpu": resource.MustParse("1")}
	s.Submit(t, pod)
	s.awaitRunning(pod)
	assert.Equal(t, 1, boughtInstances(s))
}

func TestAPoolThatRefusesToBeAskedForAnOfferingIsBoughtWithout(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	w.Temper = temper.Strict()
	w.Temper.Targeting = temper.TargetingRefused
	s := newSuite(t, w)
	s.RunAutoscaler(t)
	pods := gpuPods("train", 2)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	s.awaitEvent("SpotPoolNotTargetable", "asg-1")
	assert.Equal(t, 2, boughtInstances(s))
}

func TestABusyScalingGroupIsLeftAndAnotherPoolBoughtOf(t *testing.T) {
	s := newSuite(t, newWorld(singleOfferingPool("asg-busy", 10), rig.SpotPool("asg-dearer", 10, []string{a10}, []string{"vsw-c"})))
	s.Cloud.SetPrice(a10, zoneC, 9, 10)
	s.injectFault(alisim.Fault{
		Action: "ScaleWithAdjustment", ScalingGroupID: "asg-busy", Kind: alisim.FaultError, Status: http.StatusBadRequest, Code: "ScalingActivityInProgress",
	})
	s.RunAutoscaler(t)
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	// A purchase is sent for two minutes.
	rig.Eventually(t, 2*soon, "it is given up", func(ctx context.Context) (bool, error) {
		messages, err := s.Events(ctx, "SpotPurchaseGivenUp")
		return len(messages) > 0, err
	})
	s.awaitEvent("SpotPoolProblem", "congested", "asg-busy")
	s.awaitRunning(pod)
	assert.Len(t, s.instances("asg-dearer"), 1)
	assert.Equal(t, 1, boughtInstances(s))
	failures, err := s.Events(t.Context(), "SpotPurchaseFailed")
	require.NoError(t, err)
	assert.Empty(t, failures, "its offering could be had as far as anybody knows")
}

func TestAGangOfWhichCoreHidesTheYoungIsBoughtWhole(t *testing.T) {
	s := newSuite(t, newWorld(singleOfferingPool("asg-1", 10)))
	s.RunAutoscaler(t, "--new-pod-scale-up-delay=10s")
	gang := rig.Gang("allreduce", 4)
	s.Submit(t, gang[:2]...)
	time.Sleep(6 * time.Second) // core sees the first two for so long before the others
	s.Submit(t, gang[2:]...)
	s.awaitRunning(gang...)
	for _, request := range s.requests("ScaleWithAdjustment") {
		assert.Equal(t, "4", request.Parameters["AdjustmentValue"], "never in pieces")
	}
}
