package simulation_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// fits returns whether the simulated scheduler places the pod on a node of 4 CPUs, on which the others run.
func fits(t *testing.T, node *apiv1.Node, pod *apiv1.Pod, others ...*apiv1.Pod) bool {
	t.Helper()
	snapshot := testsnapshot.NewTestSnapshotOrDie(t)
	infos := make([]*framework.PodInfo, 0, len(others))
	for _, other := range others {
		infos = append(infos, framework.NewPodInfo(other, nil))
	}
	require.NoError(t, snapshot.AddNodeInfo(framework.NewNodeInfo(node, nil, infos...)))
	return snapshot.CheckPredicates(pod, node.Name) == nil
}

func cpus(n string) apiv1.ResourceList {
	return apiv1.ResourceList{apiv1.ResourceCPU: resource.MustParse(n)}
}

// docs/upgrade.md tells operators what the scheduler that core simulates, that of 1.33, knows of later versions of Kubernetes.
func TestWhatTheSimulatedSchedulerKnowsOfLaterVersions(t *testing.T) {
	plain := func(options ...testutil.PodOption) *apiv1.Pod {
		return testutil.NewPod("p", append([]testutil.PodOption{testutil.WithoutGPU}, options...)...)
	}
	node := func() *apiv1.Node { return testutil.NewNode("n", "cpu", "4", "pods", "10") }

	t.Run("claims of devices are ignored", func(t *testing.T) {
		assert.True(t, fits(t, node(), plain(func(pod *apiv1.Pod) { pod.Spec.ResourceClaims = []apiv1.PodResourceClaim{{Name: "device"}} })))
	})
	whole := plain(func(pod *apiv1.Pod) { pod.Spec.Resources = &apiv1.ResourceRequirements{Requests: cpus("8")} })
	t.Run("resources of the whole pod are ignored", func(t *testing.T) { assert.True(t, fits(t, node(), whole)) })
	t.Run("resources of the whole pod count with the feature gate", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.PodLevelResources, true)
		assert.False(t, fits(t, node(), whole))
	})
	t.Run("a container that is being resized counts with what it has", func(t *testing.T) {
		resized := plain(testutil.Requesting("cpu", "1"), testutil.OnNode("n"))
		resized.Status.ContainerStatuses = []apiv1.ContainerStatus{{
			Name: resized.Spec.Containers[0].Name, Resources: &apiv1.ResourceRequirements{Requests: cpus("3")}, AllocatedResources: cpus("3"),
		}}
		assert.False(t, fits(t, node(), plain(testutil.Requesting("cpu", "2")), resized))
		assert.True(t, fits(t, node(), plain(testutil.Requesting("cpu", "1")), resized))
	})
	t.Run("the operators Gt and Lt tolerate nothing", func(t *testing.T) {
		tainted := node()
		tainted.Spec.Taints = []apiv1.Taint{{Key: "score", Value: "5", Effect: apiv1.TaintEffectNoSchedule}}
		assert.False(t, fits(t, tainted, plain(func(pod *apiv1.Pod) {
			pod.Spec.Tolerations = []apiv1.Toleration{{Key: "score", Operator: "Gt", Value: "3", Effect: apiv1.TaintEffectNoSchedule}}
		})))
	})
}
