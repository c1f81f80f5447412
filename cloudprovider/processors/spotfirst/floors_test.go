package spotfirst

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// nodeOf returns a node with room for two GPU pods.
func nodeOf(name, strategy string, options ...func(*apiv1.Node)) *apiv1.Node {
	node := testutil.NewNode(name, api.ResourceGPU, "2", "cpu", "8", "memory", "8Gi", "pods", "20")
	node.Labels[api.LabelSpotStrategy] = strategy
	node.Annotations = map[string]string{}
	for _, option := range options {
		option(node)
	}
	return node
}

func isComing(node *apiv1.Node) { node.Annotations[core.NodeUpcomingAnnotation] = "true" }

func TestPodsOfAFloorTakeOnDemandNodesBeforeAllOthers(t *testing.T) {
	floor := testutil.Annotated(api.AnnotationOnDemandFloor, "3")
	train := func(name string, options ...testutil.PodOption) *apiv1.Pod {
		return testutil.NewPod(name, append(options, floor, testutil.ReplicatedBy("train"))...)
	}
	for name, c := range map[string]struct {
		nodes           []*apiv1.Node
		running, others []*apiv1.Pod
		// placed are those of the pods a to d that have a place at once, chosen those that are to be on demand.
		placed, chosen string
	}{
		"none is there":               {chosen: "a b c"},
		"spot nodes are no place":     {nodes: []*apiv1.Node{nodeOf("s", "SpotAsPriceGo")}, chosen: "a b c"},
		"on-demand nodes are":         {nodes: []*apiv1.Node{nodeOf("n", "NoSpot")}, placed: "a b", chosen: "c"},
		"and so are other nodes":      {nodes: []*apiv1.Node{nodeOf("n", "")}, placed: "a b", chosen: "c"},
		"no more than the floor":      {nodes: []*apiv1.Node{nodeOf("n", "NoSpot"), nodeOf("m", "NoSpot")}, placed: "a b c"},
		"what runs there counts":      {nodes: []*apiv1.Node{nodeOf("n", "NoSpot")}, running: []*apiv1.Pod{train("r", testutil.OnNode("n"))}, placed: "a", chosen: "b"},
		"what runs on spot does not":  {nodes: []*apiv1.Node{nodeOf("s", "SpotAsPriceGo")}, running: []*apiv1.Pod{train("r", testutil.OnNode("s"))}, chosen: "a b c"},
		"nor what runs of another":    {nodes: []*apiv1.Node{nodeOf("n", "NoSpot")}, running: []*apiv1.Pod{testutil.NewPod("r", floor, testutil.ReplicatedBy("other"), testutil.OnNode("n"))}, placed: "a", chosen: "b c"},
		"nor what has no floor":       {nodes: []*apiv1.Node{nodeOf("n", "NoSpot")}, running: []*apiv1.Pod{testutil.NewPod("r", testutil.ReplicatedBy("train"), testutil.OnNode("n"))}, placed: "a", chosen: "b c"},
		"nor what is being deleted":   {nodes: []*apiv1.Node{nodeOf("n", "NoSpot")}, running: []*apiv1.Pod{train("r", testutil.OnNode("n"), func(pod *apiv1.Pod) { pod.DeletionTimestamp = &pod.CreationTimestamp })}, placed: "a", chosen: "b c"},
		"others come after":           {nodes: []*apiv1.Node{nodeOf("n", "NoSpot")}, others: testutil.NewPods(3, "0", testutil.ReplicatedBy("other")), placed: "a b", chosen: "c"},
		"a node that is coming is so": {nodes: []*apiv1.Node{nodeOf("n", "NoSpot", isComing)}, placed: "a b", chosen: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := testutil.NewContext(nil, c.nodes)
			require.NoError(t, ctx.ClusterSnapshot.SetClusterState(c.nodes, c.running, nil))
			floors := NewFloors(func(*apiv1.Pod) string { return "" }, func(*apiv1.Pod) bool { return false })
			pending := append(c.others, train("d"), train("c"), train("b"), train("a"))
			left, err := floors.After(pods.NewCombinedPodListProcessor([]pods.PodListProcessor{floors})).Process(ctx, pending)
			require.NoError(t, err)
			var placed, chosen []string
			for _, name := range []string{"a", "b", "c", "d"} {
				if !strings.Contains(strings.Join(testutil.Names(left), " "), name) {
					placed = append(placed, name)
				}
				if floors.Has(train(name)) {
					chosen = append(chosen, name)
				}
			}
			assert.Equal(t, c.placed, strings.Join(placed, " "))
			assert.Equal(t, c.chosen, strings.Join(chosen, " "))
			for _, other := range c.others {
				assert.Contains(t, testutil.Names(left), other.Name)
			}
		})
	}
}

func TestStandInsOfAFloorTakeOnlyNodesThatAreOnTheirWay(t *testing.T) {
	standIn := testutil.NewPod("a", testutil.Annotated(api.AnnotationOnDemandFloor, "1"))
	for name, c := range map[string]struct {
		node *apiv1.Node
		left int
	}{
		"a node that is there":         {nodeOf("n", "NoSpot"), 1},
		"a node that is on its way":    {nodeOf("n", "NoSpot", isComing), 0},
		"a spot node that is, as well": {nodeOf("n", "SpotAsPriceGo", isComing), 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := testutil.NewContext(nil, nil)
			require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{c.node}, nil, nil))
			floors := NewFloors(func(*apiv1.Pod) string { return "" }, func(*apiv1.Pod) bool { return true })
			left, err := floors.Process(ctx, []*apiv1.Pod{standIn})
			require.NoError(t, err)
			assert.Len(t, left, c.left)
		})
	}
}

func TestPodsOfAGangAreOfOneFloorWhoeverOwnsThem(t *testing.T) {
	ctx, _, _ := testutil.NewContext(nil, nil)
	floors := NewFloors(func(pod *apiv1.Pod) string { return pod.Labels["gang"] }, func(*apiv1.Pod) bool { return false })
	half := testutil.Annotated(api.AnnotationOnDemandFloor, "50%")
	a, b := testutil.NewPod("a", half, testutil.Labelled("gang", "g"), testutil.ReplicatedBy("masters")), testutil.NewPod("b", half, testutil.Labelled("gang", "g"), testutil.ReplicatedBy("workers"))
	alone := testutil.NewPod("c", half)
	elsewhere := testutil.NewPod("e", half, testutil.Labelled("gang", "g"), func(pod *apiv1.Pod) { pod.Namespace = "other" })
	_, err := floors.After(floors).Process(ctx, []*apiv1.Pod{b, a, alone, elsewhere})
	require.NoError(t, err)
	assert.True(t, floors.Has(a))
	assert.False(t, floors.Has(b))
	assert.True(t, floors.Has(alone), "a pod of nobody is a job of its own")
	assert.True(t, floors.Has(elsewhere))
	_, err = floors.After(floors).Process(ctx, nil)
	require.NoError(t, err)
	assert.False(t, floors.Has(a), "nothing is remembered")
}

// A launcher of MPI comes before its workers by name, and goes wherever there is room.
func TestOfAJobWithGPUsOnlyPodsThatRequestSomeCountForTheFloor(t *testing.T) {
	floor := testutil.Annotated(api.AnnotationOnDemandFloor, "1")
	noGPU := func(pod *apiv1.Pod) { pod.Spec.Containers[0].Resources.Requests = apiv1.ResourceList{} }
	pod := func(name string, options ...testutil.PodOption) *apiv1.Pod {
		return testutil.NewPod(name, append(options, floor, testutil.ReplicatedBy("train"))...)
	}
	system := nodeOf("system", "")
	ctx, _, _ := testutil.NewContext(nil, []*apiv1.Node{system})
	require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{system}, []*apiv1.Pod{pod("evaluator", noGPU, testutil.OnNode("system"))}, nil))
	floors := NewFloors(func(*apiv1.Pod) string { return "" }, func(*apiv1.Pod) bool { return false })
	pending := []*apiv1.Pod{pod("launcher", noGPU), pod("worker-0"), pod("worker-1")}
	_, err := floors.After(pods.NewCombinedPodListProcessor(nil)).Process(ctx, pending)
	require.NoError(t, err)
	assert.False(t, floors.Has(pending[0]), "the launcher")
	assert.True(t, floors.Has(pending[1]), "what runs on a system node without GPUs is no worker on demand")
	assert.False(t, floors.Has(pending[2]))
}
