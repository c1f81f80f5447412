package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim/temper"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/rig"
)

// boughtInstances is how many instances were bought of all pools so far, without those that were rolled back.
func boughtInstances(s *suite) int { return drill.Bought(drill.Purchases(s.Rig, time.Time{})) }

func TestPodsThatComeWhileNodesAreGivenBackAreBoughtForOnce(t *testing.T) {
	w := newWorld(singleOfferingPool("asg-1", 20))
	w.RemovalDelay = metav1.Duration{Duration: 15 * time.Second}
	s := newSuite(t, w)
	s.RunAutoscaler(t)
	first := gpuPods("first", 3)
	s.Submit(t, first...)
	s.awaitRunning(first...)
	s.deletePods(first...)
	s.eventually("the nodes are given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 0, nil })
	second := gpuPods("second", 3)
	s.Submit(t, second...)
	s.awaitRunning(second...)
	assert.Equal(t, 6, boughtInstances(s), "three for each three pods")
}

func TestInstancesThatESSWasToldToKeepAreNotGivenBack(t *testing.T) {
	kept := singleOfferingPool("asg-1", 10)
	kept.Instances = 3
	s := newSuite(t, newWorld(kept))
	protected, standing := s.instances("asg-1")[0].ID, s.instances("asg-1")[1].ID
	require.NoError(t, s.Cloud.SetLifecycle(protected, "Protected"))
	require.NoError(t, s.Cloud.SetLifecycle(standing, "Standby"))
	s.RunAutoscaler(t)
	s.awaitEvent("SpotPoolProblem", "standby", "asg-1")
	s.eventually("what nobody keeps is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	rig.Always(t, 8*time.Second, "the others stay", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	for _, id := range []string{protected, standing} {
		instance, known := s.Cloud.Instance(id)
		assert.True(t, known && instance.Status == "Running", id)
	}
}

func TestAnInstanceThatIsNotRemovedCountsAgain(t *testing.T) {
	rig.Long(t)
	s := newSuite(t, newWorld(singleOfferingPool("asg-1", 10)))
	s.RunAutoscaler(t)
	first := gpuPods("first", 1)
	s.Submit(t, first...)
	s.awaitRunning(first...)
	id := s.instances("asg-1")[0].ID
	require.NoError(t, s.Cloud.Stay(id))
	s.deletePods(first...)
	s.awaitEvent("SpotRemovalFailed", "asg-1", id)
	assert.Len(t, s.instances("asg-1"), 1)
}

func TestAGangThatIsNeverCompleteKeepsNoIdleNodes(t *testing.T) {
	idle := singleOfferingPool("asg-1", 10)
	idle.Instances = 2
	s := newSuite(t, newWorld(idle))
	gang := rig.Gang("allreduce", 3)
	for _, pod := range gang[:2] {
		pod.Spec.SchedulerName = "gang-scheduler" // which binds none before all are there, and says so
		s.Submit(t, pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		_, err := s.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	s.RunAutoscaler(t)
	s.eventually("the nodes that it cannot use are given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 0, nil })
}

// TestAGangThatCameShortWhileNobodyLedLeavesTheNodesThatPodsRunOn has an autoscaler die over the purchase of a gang, of
// which three of four nodes come; two of them are put to use before another autoscaler starts.
func TestAGangThatCameShortWhileNobodyLedLeavesTheNodesThatPodsRunOn(t *testing.T) {
	w := newWorld(singleOfferingPool("asg-1", 10))
	w.ActivityDelay = metav1.Duration{Duration: 8 * time.Second}
	w.Temper = temper.Strict()
	w.Temper.RollBack = temper.RollBackNone // ESS keeps what came
	s := newSuite(t, w)
	s.Cloud.SetStock(a10, zoneA, 3)
	first := s.RunAutoscaler(t)
	gang := rig.Gang("allreduce", 4)
	s.Submit(t, gang...)
	s.eventually("the purchase is asked for", func(context.Context) (bool, error) { return len(s.requests("ScaleWithAdjustment")) > 0, nil })
	first.Kill()
	s.deletePods(gang...)

	var nodes []corev1.Node
	s.eventually("three come", func(ctx context.Context) (_ bool, err error) {
		nodes, err = s.nodes(ctx)
		return len(nodes) == 3, err
	})
	others := gpuPods("other", 2)
	for i, pod := range others {
		pod.Spec.NodeName = nodes[i].Name
	}
	s.Submit(t, others...)
	s.awaitRunning(others...)
	s.RunAutoscaler(t)
	s.awaitEvent("SpotPurchaseRolledBack", "Giving back 1 of 4")
	s.eventually("the idle one goes", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	rig.Always(t, 8*time.Second, "the others stay", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	s.awaitRunning(others...)
}
