package e2e

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

func TestPendingPodsAreBoughtForInTheCheapestZoneFromZero(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.RunAutoscaler(t)
	pods := gpuPods("train", 3)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	assert.Equal(t, map[string]int{zoneB: 3}, s.zonesOf("asg-1"))
	assert.Len(t, s.requests("ScaleWithAdjustment"), 1, "three pods that come together are bought for together")
	s.awaitEvent("SpotPurchaseRequested", "3 instances", zoneB, "4.000")
}

func TestStockoutTurnsToTheNextCheapestOffering(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.Cloud.SetStock(a10, zoneB, 0)
	s.RunAutoscaler(t)
	pods := gpuPods("train", 2)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	assert.Equal(t, map[string]int{zoneC: 2}, s.zonesOf("asg-1"))
	s.awaitEvent("SpotPurchaseFailed", zoneB, "NoStock")
}

func TestPodsGoToThePoolThatTheyAskFor(t *testing.T) {
	left, right := spotPool("asg-left", 10), rig.SpotPool("asg-right", 10, []string{t4}, vswitches())
	left.Tags["k8s.io/cluster-autoscaler/node-template/label/team"] = "left"
	right.Tags["k8s.io/cluster-autoscaler/node-template/label/team"] = "right"
	s := newSuite(t, newWorld(left, right))
	s.RunAutoscaler(t)
	first, second := rig.GPUPod("first", 1), rig.GPUPod("second", 1)
	first.Spec.NodeSelector = map[string]string{"team": "left"}
	second.Spec.NodeSelector = map[string]string{"team": "right"}
	s.Submit(t, first, second)
	s.awaitRunning(first, second)
	assert.Len(t, s.instances("asg-left"), 1)
	assert.Len(t, s.instances("asg-right"), 1)
}

func TestGangOfEightComesWholeOrNotAtAll(t *testing.T) {
	w := newWorld(spotPool("asg-1", 20))
	w.BootDelay = metav1.Duration{Duration: 10 * time.Second} // no machine is up before it is known that others did not come
	s := newSuite(t, w)
	// The cheapest zone has three only.
	s.Cloud.SetStock(a10, zoneB, 3)
	s.RunAutoscaler(t)
	gang := rig.Gang("allreduce", 8)
	s.Submit(t, gang[:5]...)
	rig.Always(t, 4*time.Second, "nothing is bought for five of eight", func(context.Context) (bool, error) {
		return len(s.requests("ScaleWithAdjustment")) == 0, nil
	})
	s.Submit(t, gang[5:]...)
	s.awaitRunning(gang...)
	s.awaitEvent("SpotPurchaseRolledBack", zoneB)
	s.eventually("all eight are in one zone and what came of the first purchase is given back", func(context.Context) (bool, error) {
		zones := s.zonesOf("asg-1")
		return len(zones) == 1 && zones[zoneC] == 8, nil
	})
	for _, request := range s.requests("ScaleWithAdjustment") {
		assert.Equal(t, "8", request.Parameters["AdjustmentValue"], "never in pieces")
	}
}

func TestMaximumOfAPoolHolds(t *testing.T) {
	limited := spotPool("asg-1", 10)
	limited.Tags["gpu-spot.autoscaling/max-size"] = "2"
	s := newSuite(t, newWorld(limited))
	s.RunAutoscaler(t)
	pods := gpuPods("train", 4)
	s.Submit(t, pods...)
	s.eventually("two of four run", func(ctx context.Context) (bool, error) { return countRunning(ctx, s, pods) == 2, nil })
	rig.Always(t, 6*time.Second, "there are no more than two", func(context.Context) (bool, error) {
		return len(s.instances("asg-1")) <= 2, nil
	})
}

func TestPriceCapIsNotExceeded(t *testing.T) {
	capped := spotPool("asg-1", 10)
	capped.Tags["gpu-spot.autoscaling/price-cap"] = "4.5"
	s := newSuite(t, newWorld(capped))
	s.Cloud.SetPrice(a10, zoneB, 5.5, 10)
	s.RunAutoscaler(t, "--price-refresh-interval=1s")
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	rig.Always(t, 6*time.Second, "nothing is bought above the cap", func(context.Context) (bool, error) {
		return len(s.requests("ScaleWithAdjustment")) == 0, nil
	})
	s.Cloud.SetPrice(a10, zoneC, 3, 10)
	s.awaitRunning(pod)
	assert.Equal(t, map[string]int{zoneC: 1}, s.zonesOf("asg-1"))
}

func TestProvisioningRequestIsBoughtForWhole(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 20)))
	applyModuleManifest(s, "k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml")
	s.InstallManifest(t, "deploy/manifests/optional/provisioning-requests.yaml")
	s.RunAutoscaler(t, "--enable-provisioning-requests=true", "--scale-down-enabled=false")
	pod := rig.GPUPod("worker", 1)
	_, err := s.Client.CoreV1().PodTemplates(metav1.NamespaceDefault).Create(t.Context(), &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Cluster.ApplyYAML(t.Context(), strings.NewReader(`
apiVersion: autoscaling.x-k8s.io/v1
kind: ProvisioningRequest
metadata: {name: gang, namespace: default}
spec:
  provisioningClassName: best-effort-atomic-scale-up.autoscaling.x-k8s.io
  podSets: [{podTemplateRef: {name: worker}, count: 4}]
`)))
	s.eventually("four are bought at once", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 4, nil })
	require.Len(t, s.requests("ScaleWithAdjustment"), 1)
	assert.Equal(t, "4", s.requests("ScaleWithAdjustment")[0].Parameters["AdjustmentValue"])

	client, err := dynamic.NewForConfig(s.Cluster.AdminConfig())
	require.NoError(t, err)
	requests := client.Resource(schema.GroupVersionResource{Group: "autoscaling.x-k8s.io", Version: "v1", Resource: "provisioningrequests"}).
		Namespace(metav1.NamespaceDefault)
	aged := `{"status": {"conditions": [{"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "",
		"lastTransitionTime": "` + time.Now().Add(-8*24*time.Hour).UTC().Format(time.RFC3339) + `"}]}}`
	s.eventually("it is removed a week after it was done", func(ctx context.Context) (bool, error) {
		_, err := requests.Patch(ctx, "gang", types.MergePatchType, []byte(aged), metav1.PatchOptions{}, "status")
		return apierrors.IsNotFound(err), nil
	})
}

func TestPoolThatIgnoresTargetingBecomesOneNodeGroup(t *testing.T) {
	stubborn := spotPool("asg-1", 10)
	stubborn.IgnoreTargeting = true
	s := newSuite(t, newWorld(stubborn))
	autoscaler := s.RunAutoscaler(t)
	first := rig.GPUPod("first", 1)
	s.Submit(t, first)
	s.awaitRunning(first)
	s.awaitEvent("SpotPoolNotTargetable", "asg-1", zoneB)
	second := rig.GPUPod("second", 1)
	s.Submit(t, second)
	s.awaitRunning(second)
	plan := s.Cloud.Requests("ScaleWithAdjustment")[0]
	assert.Equal(t, "PlanOnly", plan.Parameters["ExecutionMode"])
	assert.Contains(t, plan.Parameters, "InstanceType.1")
	for _, purchase := range s.requests("ScaleWithAdjustment") {
		assert.NotContains(t, purchase.Parameters, "InstanceType.1", "the plan had told that it would be ignored")
	}
	assert.Len(t, s.instances("asg-1"), 2, "nothing is bought twice over it")

	families, err := autoscaler.Metrics(t.Context())
	require.NoError(t, err)
	require.Contains(t, families, "gpu_spot_pool_targeting")
	assert.Equal(t, "whole", families["gpu_spot_pool_targeting"].GetMetric()[0].GetLabel()[0].GetValue())
}

func TestPayAsYouGoInPlaceOfSpotIsTold(t *testing.T) {
	careless := singleOfferingPool("asg-1", 10)
	compensate := true
	careless.MultiAZPolicy, careless.CompensateWithOnDemand = "COST_OPTIMIZED", &compensate // it takes effect with that only
	s := newSuite(t, newWorld(careless))
	s.Cloud.SetStock(a10, zoneA, 0)
	s.RunAutoscaler(t)
	s.awaitEvent("SpotPoolProblem", "CompensateWithOnDemand")
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitRunning(pod)
	assert.Equal(t, alisim.NoSpot, s.instances("asg-1")[0].SpotStrategy)
	s.awaitEvent("SpotCompensatedWithOnDemand", "asg-1")
}

// cpuOnly is a type without GPUs.
var cpuOnly = alisim.Type{ID: "ecs.c7.2xlarge", VCPU: 8, MemoryGiB: 16, OnDemand: 3}

// cpuPods are n pods that ask for three CPUs each and no GPU: two of them fit a machine of eight CPUs.
func cpuPods(name string, n int) []*corev1.Pod {
	pods := gpuPods(name, n)
	for _, pod := range pods {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	}
	return pods
}

func TestPodsThatAskForNoGPULiveBesideTheGPUPodAndBuyMachinesWithoutGPUs(t *testing.T) {
	w := newWorld(singleOfferingPool("asg-gpu", 10), rig.SpotPool("asg-cpu", 10, []string{cpuOnly.ID}, []string{"vsw-a"}))
	w.Types = append(w.Types, cpuOnly)
	s := newSuite(t, w)
	s.Cloud.SetPrice(cpuOnly.ID, zoneA, 1, 3)
	s.RunAutoscaler(t)
	batch, train := cpuPods("batch", 6), rig.GPUPod("train", 1)
	s.Submit(t, train)
	s.eventually("a GPU machine is bought", func(context.Context) (bool, error) { return len(s.requests("ScaleWithAdjustment")) == 1, nil })
	s.Submit(t, batch...)
	s.awaitRunning(append(batch, train)...)
	assert.Len(t, s.instances("asg-gpu"), 1, "one GPU pod needs one GPU machine")
	assert.Len(t, s.instances("asg-cpu"), 2, "two pods have what is left of it, four need two machines")
}

func TestPodsThatAskForNoGPUBuyGPUMachinesWhereTheirPoolAllowsIt(t *testing.T) {
	reserved := singleOfferingPool("asg-1", 10)
	s := newSuite(t, newWorld(reserved))
	s.RunAutoscaler(t)
	pods := cpuPods("batch", 2)
	s.Submit(t, pods...)
	s.awaitEvent("NotTriggerScaleUp", "bought only for pods that ask for a GPU", "gpu-spot.autoscaling/buy-for-cpu-pods=true")
	assert.Empty(t, s.requests("ScaleWithAdjustment"))

	tags := maps.Clone(reserved.Tags)
	tags["gpu-spot.autoscaling/buy-for-cpu-pods"] = "true"
	require.NoError(t, s.Cloud.SetGroupTags("asg-1", tags))
	s.awaitRunning(pods...)
	assert.Len(t, s.instances("asg-1"), 1)
}

func TestAPendingPodSaysThatThePriceIsAboveTheCap(t *testing.T) {
	dear := singleOfferingPool("asg-1", 10)
	dear.Tags["gpu-spot.autoscaling/price-cap"] = "5.5"
	s := newSuite(t, newWorld(dear))
	s.RunAutoscaler(t, "--price-refresh-interval=1s")
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitEvent("NotTriggerScaleUp", "1 price cap 5.5 < price ")
	messages, err := s.Events(t.Context(), "NotTriggerScaleUp")
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(messages, "\n"), "max node group size")

	s.Cloud.SetPrice(a10, zoneA, 5, 20)
	s.awaitRunning(pod)
}
