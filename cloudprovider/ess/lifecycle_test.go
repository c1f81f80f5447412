package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate/utils"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupconfig"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups/asyncnodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/utils/backoff"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// readyNodesOf returns Nodes that have been Ready for an hour.
func readyNodesOf(ids ...string) []*apiv1.Node {
	nodes := nodesOf(ids...)
	for _, node := range nodes {
		node.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		node.Status.Conditions = []apiv1.NodeCondition{{Type: apiv1.NodeReady, Status: apiv1.ConditionTrue}}
	}
	return nodes
}

// clusterState is core's own state of targets, Nodes and purchases.
type clusterState struct {
	*fixture
	*clusterstate.ClusterStateRegistry
	now time.Time
}

func (f *fixture) clusterState() *clusterState {
	recorder, err := utils.NewStatusMapRecorder(&fake.Clientset{}, "kube-system", record.NewFakeRecorder(50), false, "status")
	require.NoError(f, err)
	return &clusterState{fixture: f, now: time.Now(), ClusterStateRegistry: clusterstate.NewClusterStateRegistry(f.provider,
		clusterstate.ClusterStateRegistryConfig{MaxTotalUnreadyPercentage: 45, OkTotalUnreadyCount: 3}, recorder,
		backoff.NewIdBasedExponentialBackoff(5*time.Minute, 30*time.Minute, 3*time.Hour),
		nodegroupconfig.NewDefaultNodeGroupConfigProcessor(config.NodeGroupAutoscalingOptions{MaxNodeProvisionTime: 15 * time.Minute}),
		asyncnodegroups.NewDefaultAsyncNodeGroupStateChecker())}
}

// loop is one loop of core. It does not see the nodes that are out of service.
func (c *clusterState) loop(nodes ...*apiv1.Node) {
	c.Helper()
	c.now = c.now.Add(time.Second)
	c.provider.BeginLoop(nodes)
	var shown []*apiv1.Node
	for _, node := range nodes {
		if !c.provider.OutOfService(node) {
			shown = append(shown, node)
		}
	}
	c.refresh()
	c.InvalidateNodeInstancesCacheEntry(c.group(a10InA))
	require.NoError(c, c.UpdateNodes(shown, nil, c.now))
}

func (c *clusterState) buy(n int) {
	c.Helper()
	require.NoError(c, c.group(a10InA).IncreaseSize(n))
	c.RegisterScaleUp(c.group(a10InA), n, c.now)
}

// upcoming is how many nodes core still expects.
func (c *clusterState) upcoming() int {
	upcoming, _ := c.GetUpcomingNodes()
	return upcoming[a10InA]
}

func TestNodesThatAreGivenBackDoNotHideWhatIsBought(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.removing = true
	ids := f.cloud.launch(3, "asg-1", "", a10, "zone-a")
	nodes := readyNodesOf(ids...)
	core := f.clusterState()
	core.loop(nodes...)
	require.Zero(t, core.upcoming())

	require.Empty(t, f.giveBack(ids...))
	core.buy(3) // in the same loop, which has seen the Nodes
	f.refresh()
	require.NoError(t, core.UpdateNodes(nodes, nil, core.now))
	assert.Equal(t, 3, core.upcoming(), "or they are bought once more")
	core.loop(nodes...)
	assert.Equal(t, 3, core.upcoming())
	assert.Equal(t, 3, f.target(a10InA), "what leaves does not count")
	assert.True(t, core.HasNodeGroupStartedScaleUp(a10InA))

	f.cloud.release(ids...) // ECS has released them, but their Nodes are still Ready
	core.loop(nodes...)
	core.loop(nodes...)
	assert.Equal(t, 3, core.upcoming())
	assert.True(t, f.provider.OutOfService(nodes[0]), "pods would wait for its kubelet")

	f.cloud.end("asa-1", "OperationDenied.NoStock")
	core.loop(nodes...)
	assert.True(t, core.BackoffStatusForNodeGroup(f.group(a10InA), core.now).IsBackedOff, "sold out, so it is left alone")
}

func TestNodeGivenBackByAFormerProcessIsOutOfService(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	id := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
	gone, alive := nodeOf("i-gone"), nodeOf(id)
	for _, node := range []*apiv1.Node{gone, alive} {
		node.Annotations = map[string]string{api.AnnotationRemoved: time.Now().Format(time.RFC3339)}
	}
	f.provider.BeginLoop([]*apiv1.Node{gone, alive})
	assert.False(t, f.provider.OutOfService(gone), "nothing is known yet")
	f.refresh()
	f.provider.BeginLoop([]*apiv1.Node{gone, alive})
	assert.True(t, f.provider.OutOfService(gone))
	assert.False(t, f.provider.OutOfService(alive), "its removal came to nothing")
}

func TestNodesOfAPoolThatIsNoLongerOursStayCapacity(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")))
	id := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
	f.loop(nodeOf(id))
	delete(f.cloud.groups, "asg-1")
	f.loop(nodeOf(id))
	f.loop(nodeOf(id))
	assert.False(t, f.provider.OutOfService(nodeOf(id)), "its pods run on")
}

func TestInstancesThatServeNothingAreNoCapacity(t *testing.T) {
	for state, problem := range map[string]string{
		alicloud.LifecycleStandby: "(standby)", alicloud.LifecycleStopped: "(stopped)",
	} {
		t.Run(state, func(t *testing.T) {
			group := spotGroup("asg-1")
			group.MinSize = 1
			f := newFixture(t, newFakeCloud(group))
			ids := f.cloud.launch(3, "asg-1", "", a10, "zone-a")
			nodes := readyNodesOf(ids...)
			f.loop(nodes...)
			f.cloud.setState(state, ids[0])
			f.refresh()
			assert.Equal(t, 3, f.target(a10InA), "frozen until the next loop, which does not show its Node")
			core := f.clusterState()
			core.loop(nodes...)
			assert.Equal(t, 2, f.target(a10InA))
			assert.Zero(t, core.upcoming())
			assert.True(t, f.provider.OutOfService(nodes[0]))
			assert.Equal(t, 2+7, f.group(a10InA).MaxSize(), "it does hold room in the scaling group")
			status, _ := f.provider.PoolOf(nodes[1])
			assert.Equal(t, 2, status.Size)
			assert.False(t, f.provider.MayGiveBack(nodes[0]))
			assert.False(t, f.provider.Serves(nodes[0]))
			require.ErrorIs(t, f.provider.GiveBack(nodes[0]), ErrKept)
			said := f.events.With("SpotPoolProblem")
			require.Len(t, said, 1)
			assert.Contains(t, said[0], problem)
			assert.Contains(t, said[0], ids[0])

			f.cloud.setState(alicloud.LifecycleInService, ids[0])
			core.loop(nodes...)
			core.loop(nodes...)
			assert.Equal(t, 3, f.target(a10InA))
			assert.False(t, f.provider.OutOfService(nodes[0]))
		})
	}
}

func TestProtectedInstanceIsRemovedByForceOnly(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.cloud.setState(alicloud.LifecycleProtected, ids[0])
	f.loop(nodesOf(ids...)...)
	assert.Equal(t, 2, f.target(a10InA), "it is capacity like any other")
	assert.False(t, f.provider.OutOfService(nodeOf(ids[0])))
	assert.False(t, f.provider.MayGiveBack(nodeOf(ids[0])))
	assert.True(t, f.provider.Serves(nodeOf(ids[0])))
	errs := f.giveBack(ids...)
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], ErrKept)
	assert.Contains(t, f.cloud.instances, ids[0])
	f.loop(nodesOf(ids[0])...)
	require.NoError(t, f.group(a10InA).ForceDeleteNodes(nodesOf(ids[0])))
	assert.Empty(t, f.cloud.instances)
}

func TestProtectedInstanceOfABrokenGangStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")), occupied())
		f.loop()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(3))
		came := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
		f.cloud.setState(alicloud.LifecycleProtected, came[0])
		f.cloud.end("asa-0", "OperationDenied.NoStock", came...)
		f.loop(nodesOf(came...)...)
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		time.Sleep(time.Minute)
		f.loop(nodesOf(came...)...)
		f.loop(nodesOf(came...)...)
		assert.Len(t, f.cloud.instances, 1)
		assert.Contains(t, f.cloud.instances, came[0])
		assert.Equal(t, 1, f.target(a10InA))
		assert.Empty(t, f.purchases(), "the rest of it is over")
	})
}

// An instance under Recycling may be shown as Stopped already, as in Alibaba Cloud's own sample of DescribeInstances.
func TestAReclaimingInstanceThatIsShownAsStoppedIsNotInEconomicalMode(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	id := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
	f.cloud.setState(alicloud.LifecycleStopped, id)
	f.reclaiming.Insert(id)
	f.provider.BeginLoop(nodesOf(id))
	f.refresh()
	assert.Empty(t, f.events.With("SpotPoolProblem"))
	assert.True(t, f.provider.IsReclaiming(nodeOf(id)))
	exists, err := f.provider.HasInstance(nodeOf(id))
	require.NoError(t, err)
	assert.True(t, exists, "nor is it gone")

	f.reclaiming.Delete(id) // it was stopped by hand
	f.provider.BeginLoop(nodesOf(id))
	f.refresh()
	require.Len(t, f.events.With("SpotPoolProblem"), 1)
	assert.Contains(t, f.events.With("SpotPoolProblem")[0], "(stopped)")
}
