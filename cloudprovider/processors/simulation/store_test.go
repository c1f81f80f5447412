package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/store"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// newPod runs on the node, uses a volume claim and refuses others of its kind on its node, now and then.
func newPod(name, node string, kind int) *apiv1.Pod {
	pod := testutil.NewPod(name)
	pod.Spec.NodeName = node
	if kind%3 == 0 {
		pod.Spec.Volumes = []apiv1.Volume{{VolumeSource: apiv1.VolumeSource{
			PersistentVolumeClaim: &apiv1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("claim-", kind)},
		}}}
	}
	if kind%5 == 0 {
		pod.Spec.Affinity = &apiv1.Affinity{PodAntiAffinity: &apiv1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []apiv1.PodAffinityTerm{{
				TopologyKey: apiv1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			}},
		}}
	}
	return pod
}

func newNode(name string) *apiv1.Node { return testutil.NewNode(name, "cpu", "16", "pods", "64") }

// describe returns everything that the scheduler's plugins could see, in an order that does not depend on that of the nodes.
func describe(t *testing.T, s clustersnapshot.ClusterSnapshotStore) (seen []string) {
	t.Helper()
	lists := map[string]func() ([]*schedulerframework.NodeInfo, error){
		"all": s.NodeInfos().List, "affinity": s.NodeInfos().HavePodsWithAffinityList, "anti-affinity": s.NodeInfos().HavePodsWithRequiredAntiAffinityList,
	}
	for name, list := range lists {
		nodes, err := list()
		require.NoError(t, err)
		for _, node := range nodes {
			var pods []string
			for _, pod := range node.Pods {
				pods = append(pods, pod.Pod.Name)
			}
			slices.Sort(pods)
			seen = append(seen, fmt.Sprintln(name, node.Node().Name, pods, node.Requested, node.NonZeroRequested, node.Allocatable, node.PVCRefCounts))
			got, err := s.NodeInfos().Get(node.Node().Name)
			require.NoError(t, err)
			require.Same(t, node, got)
		}
	}
	for kind := range 30 {
		if key := fmt.Sprint("ml", "/claim-", kind); s.StorageInfos().IsPVCUsedByPods(key) {
			seen = append(seen, key)
		}
	}
	slices.Sort(seen)
	return seen
}

// step is a change of both stores.
type step func(s clustersnapshot.ClusterSnapshotStore) error

// anyStep returns a change, or one that cannot be made.
func anyStep(random *rand.Rand, n int) (name string, change step) {
	node, pod := fmt.Sprint("node-", random.IntN(8)), fmt.Sprint("pod-", random.IntN(20))
	switch random.IntN(8) {
	case 0, 1:
		added := newPod(fmt.Sprint("pod-", n), node, random.IntN(30))
		return "add a pod to " + node, func(s clustersnapshot.ClusterSnapshotStore) error { return s.ForceAddPod(added, node) }
	case 2:
		return "remove " + pod + " from " + node, func(s clustersnapshot.ClusterSnapshotStore) error {
			return s.ForceRemovePod("ml", pod, node)
		}
	case 3:
		info := schedulerframework.NewNodeInfo(newPod(fmt.Sprint("pod-", n), node, random.IntN(30)))
		info.SetNode(newNode(node))
		return "add " + node, func(s clustersnapshot.ClusterSnapshotStore) error { return s.AddSchedulerNodeInfo(info) }
	case 4:
		return "remove " + node, func(s clustersnapshot.ClusterSnapshotStore) error { return s.RemoveSchedulerNodeInfo(node) }
	case 5:
		return "fork", func(s clustersnapshot.ClusterSnapshotStore) error { s.Fork(); return nil }
	case 6:
		return "revert", func(s clustersnapshot.ClusterSnapshotStore) error { s.Revert(); return nil }
	}
	return "commit", func(s clustersnapshot.ClusterSnapshotStore) error { return s.Commit() }
}

func TestAnyChangesHaveTheSameResultAsInTheStoreOfCore(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		ours, core := NewStore(2), clustersnapshot.ClusterSnapshotStore(store.NewDeltaSnapshotStore(2))
		var nodes []*apiv1.Node
		var pods []*apiv1.Pod
		for i := range 6 {
			nodes = append(nodes, newNode(fmt.Sprint("node-", i)))
			pods = append(pods, newPod(fmt.Sprint("pod-", i), fmt.Sprint("node-", random.IntN(7)), random.IntN(30)))
		}
		var steps []string
		for loop := range 3 {
			require.NoError(t, ours.SetClusterState(nodes, pods, nil))
			require.NoError(t, core.SetClusterState(nodes, pods, nil))
			for n := range 30 {
				name, change := anyStep(random, 6+loop*30+n)
				steps = append(steps, name)
				ourErr, coreErr := change(ours), change(core)
				require.Equal(t, coreErr == nil, ourErr == nil, "%v: %v, %v", steps, ourErr, coreErr)
				require.Equal(t, errors.Is(coreErr, clustersnapshot.ErrNodeNotFound), errors.Is(ourErr, clustersnapshot.ErrNodeNotFound), "%v", steps)
				require.Equal(t, describe(t, core), describe(t, ours), "%v", steps)
			}
			// What the informers tell between two loops.
			nodes[random.IntN(len(nodes))] = testutil.NewNode(fmt.Sprint("node-", 100+loop), "cpu", "8")
			pods[random.IntN(len(pods))] = newPod(fmt.Sprint("new-", loop), "node-1", random.IntN(30))
			random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		}
	}
}

func TestOnlyWhatChangedBetweenLoopsIsComputedAnew(t *testing.T) {
	nodes := []*apiv1.Node{newNode("same"), newNode("other-node"), newNode("other-pod"), newNode("fewer-pods")}
	pods := []*apiv1.Pod{
		newPod("a", "same", 1), newPod("b", "same", 1), newPod("c", "other-node", 1), newPod("d", "other-pod", 1), newPod("e", "fewer-pods", 1),
	}
	s := NewStore(1)
	info := func(node string) *schedulerframework.NodeInfo {
		found, err := s.NodeInfos().Get(node)
		require.NoError(t, err)
		return found
	}
	require.NoError(t, s.SetClusterState(nodes, pods, nil))
	before := map[string]*schedulerframework.NodeInfo{}
	for _, node := range nodes {
		before[node.Name] = info(node.Name)
	}
	podInfo := before["other-node"].Pods[0]
	require.NoError(t, s.ForceAddPod(newPod("x", "", 1), "same"))
	assert.NotSame(t, before["same"], info("same"))

	nodes[1] = nodes[1].DeepCopy()
	nodes[1].Status.Allocatable[apiv1.ResourceCPU] = resource.MustParse("1")
	pods[3] = pods[3].DeepCopy()
	pods = []*apiv1.Pod{pods[3], pods[2], pods[1], pods[0]}
	require.NoError(t, s.SetClusterState(nodes, pods, nil))
	assert.Same(t, before["same"], info("same"), "whatever was simulated")
	assert.Len(t, info("same").Pods, 2)
	assert.Same(t, podInfo, info("other-node").Pods[0], "the requests of pods are kept where their Node was updated")
	assert.EqualValues(t, 1000, info("other-node").Allocatable.MilliCPU)
	assert.Same(t, pods[0], info("other-pod").Pods[0].Pod)
	assert.Empty(t, info("fewer-pods").Pods)
}

func TestANodeThatIsThereTwiceIsAnError(t *testing.T) {
	assert.ErrorContains(t, NewStore(1).SetClusterState([]*apiv1.Node{newNode("a"), newNode("a")}, nil, nil), "a")
}
