package podlist

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestUpcomingNodesAreKnownByTheNamesThatCoreGivesThem(t *testing.T) {
	const id = "asg-1/ecs.gn7i-c8g1.2xlarge/zone-a/spot"
	provider := testprovider.NewTestCloudProviderBuilder().WithMachineTemplates(map[string]*framework.NodeInfo{
		id: framework.NewTestNodeInfo(testutil.NewNode("any", "cpu", "8")),
	}).Build()
	provider.AddAutoprovisionedNodeGroup(id, 0, 9, 0, id)
	template, aErr := simulator.SanitizedTemplateNodeInfoFromNodeGroup(provider.GetNodeGroup(id), nil, taints.TaintConfig{})
	require.Nil(t, aErr)
	upcoming, err := simulator.SanitizedNodeInfo(template, "upcoming-0")
	require.NoError(t, err)
	group, isUpcoming := upcomingOf(upcoming.Node().Name)
	assert.True(t, isUpcoming, upcoming.Node().Name)
	assert.Equal(t, id, group)

	for _, other := range []string{template.Node().Name, "ap-southeast-1.10.0.0.1", "template-node-for-upcoming-1", "template-node-for--upcoming-1"} {
		_, isUpcoming := upcomingOf(other)
		assert.False(t, isUpcoming, other)
	}
}

// countingSnapshot counts how often a pod was tried on a node.
type countingSnapshot struct {
	clustersnapshot.ClusterSnapshot
	tries int
}

func (s *countingSnapshot) SchedulePod(pod *apiv1.Pod, node string) clustersnapshot.SchedulingError {
	s.tries++
	return s.ClusterSnapshot.SchedulePod(pod, node)
}

// onUpcoming processes the pods, all bought for of the group, in a cluster with upcoming nodes of two GPUs, and returns the names of
// those that fit none.
func onUpcoming(t *testing.T, nodes int, pods ...*apiv1.Pod) (left []string, tries int) {
	t.Helper()
	snapshot := &countingSnapshot{ClusterSnapshot: testsnapshot.NewTestSnapshotOrDie(t)}
	places := NewPlaces()
	for i := range nodes {
		node := testutil.NewNode(fmt.Sprintf("template-node-for-g-7-upcoming-%d", i), "cpu", "8", "pods", "110", "nvidia.com/gpu", "2")
		require.NoError(t, snapshot.AddNodeInfo(framework.NewTestNodeInfo(node)))
	}
	for _, pod := range pods {
		places.Remember(pod, "g")
	}
	rest, err := places.Process(&cacontext.AutoscalingContext{ClusterSnapshot: snapshot}, pods)
	require.NoError(t, err)
	for _, pod := range rest {
		left = append(left, pod.Name)
	}
	return left, snapshot.tries
}

func TestPodsFillTheUpcomingNodesThatWereBoughtForThem(t *testing.T) {
	elsewhere := testutil.NewPod("elsewhere", func(pod *apiv1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} })
	big := testutil.NewPod("big", testutil.Requesting("nvidia.com/gpu", "3"))
	left, _ := onUpcoming(t, 3, append([]*apiv1.Pod{elsewhere, big}, testutil.NewPods(7, "p")...)...)
	assert.Equal(t, []string{"elsewhere", "big", "p-6"}, left, "a pod that fits no node leaves the nodes to those that do")
}

func TestFullUpcomingNodesAreNotTriedForEachPod(t *testing.T) {
	const nodes = 50
	left, tries := onUpcoming(t, nodes, testutil.NewPods(2*nodes+20, "p")...)
	assert.Len(t, left, 20)
	assert.LessOrEqual(t, tries, 2*nodes+nodes, "each pod that fits once, and each node that is full once")
}
