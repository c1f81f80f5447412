package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/rig"
)

// gangWithLauncher returns a gang of n pods of which the first requests no GPU, and keeps off the nodes of the others, one of which may be
// there first.
func gangWithLauncher(name string, n int) []*corev1.Pod {
	pods := rig.Gang(name, n)
	pods[0].Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6")},
	}
	pods[0].Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: cpuOnly.ID}
	return pods
}

func TestAGangWithALauncherWithoutGPUsIsBoughtOfTwoPools(t *testing.T) {
	w := newWorld(singleOfferingPool("asg-gpu", 10), rig.SpotPool("asg-cpu", 4, []string{cpuOnly.ID}, []string{"vsw-a"}))
	w.Types = append(w.Types, cpuOnly)
	w.Sell(cpuOnly.ID, zoneA, 1, 3)
	s := newSuite(t, w)
	s.RunAutoscaler(t)
	pods := gangWithLauncher("train", 4)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	assert.Len(t, s.instances("asg-gpu"), 3)
	assert.Len(t, s.instances("asg-cpu"), 1)
}

func TestAGangOverTwoPoolsIsGivenBackWhereOneComesShort(t *testing.T) {
	w := newWorld(rig.SpotPool("asg-1", 3, []string{a10}, []string{"vsw-a"}), rig.SpotPool("asg-2", 3, []string{a10}, []string{"vsw-b"}))
	// A node with a pod on it would be kept, and a scheduler that knows no gangs places pods as nodes come.
	s := newSuiteWith(t, rig.Options{World: w, WithoutNodes: true})
	s.Cloud.SetStock(a10, zoneB, 1)
	s.RunAutoscaler(t)
	pods := rig.Gang("train", 5)
	s.Submit(t, pods...)
	s.awaitEvent("SpotGangDoesNotFit", "train", api.AnnotationGangZones)
	assert.Empty(t, s.requests("ScaleWithAdjustment"), "nothing is bought in one zone alone")

	s.deletePods(pods...)
	pods = rig.Gang("anywhere", 5)
	for _, pod := range pods {
		pod.Annotations = map[string]string{api.AnnotationGangZones: api.GangZonesAny}
	}
	s.Submit(t, pods...)
	s.eventually("both pools are asked", func(context.Context) (bool, error) {
		return len(s.requests("ScaleWithAdjustment")) >= 2, nil
	})
	s.awaitEvent("SpotPurchaseFailed", "asg-2")
	s.awaitEvent("SpotPurchaseRolledBack", "asg-1")
	s.eventually("what came is given back", func(context.Context) (bool, error) {
		return len(s.instances("asg-1"))+len(s.instances("asg-2")) == 0, nil
	})
	rig.Always(t, 10*time.Second, "nothing more is bought", func(context.Context) (bool, error) {
		return len(s.instances("asg-1"))+len(s.instances("asg-2")) == 0, nil
	})
}
