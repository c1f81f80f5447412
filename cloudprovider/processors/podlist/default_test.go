package podlist

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/core/podlistprocessor"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestPodsDoNotTakeThePlaceThatWasBoughtForMoreDemandingOnes(t *testing.T) {
	node := func(name, gpus string, labels map[string]string) *apiv1.Node {
		n := testutil.NewNode(name, "cpu", "16", "memory", "64Gi", "pods", "64", api.ResourceGPU, gpus)
		n.Labels = labels
		return n
	}
	eight := testutil.Requesting(api.ResourceGPU, "8")
	inZone := func(pod *apiv1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }
	urgent := func(pod *apiv1.Pod) { pod.Spec.Priority = ptr.To[int32](9) }
	for name, test := range map[string]struct {
		pods  []*apiv1.Pod
		nodes []*apiv1.Node
		left  []string
	}{
		"a small pod before a big one": {
			[]*apiv1.Pod{testutil.NewPod("small"), testutil.NewPod("big", eight)},
			[]*apiv1.Node{node("a-eight", "8", nil), node("b-one", "1", nil)}, nil,
		},
		"a pod that fits any zone before one of a zone": {
			[]*apiv1.Pod{testutil.NewPod("any"), testutil.NewPod("bound", inZone)},
			[]*apiv1.Node{node("a-in-b", "1", map[string]string{"zone": "b"}), node("b-in-a", "1", map[string]string{"zone": "a"})}, nil,
		},
		"more GPUs than any node has free": {
			[]*apiv1.Pod{testutil.NewPod("big", eight), testutil.NewPod("small")},
			[]*apiv1.Node{node("a-four", "4", nil), node("b-four", "4", nil)}, []string{"big"},
		},
		"priority goes before demand": {
			[]*apiv1.Pod{testutil.NewPod("big", eight), testutil.NewPod("small", urgent)},
			[]*apiv1.Node{node("a-eight", "8", nil)}, []string{"big"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				ctx, _, _ := testutil.NewContext(nil, nil)
				ctx.DebuggingSnapshotter = debuggingsnapshot.NewDebuggingSnapshotter(false)
				require.NoError(t, ctx.ClusterSnapshot.SetClusterState(test.nodes, nil, nil))
				left, err := newGPUPodsFirst(nil).Process(ctx, slices.Clone(test.pods))
				require.NoError(t, err)
				assert.ElementsMatch(t, test.left, testutil.Names(left))
				slices.Reverse(test.pods)
			}
		})
	}
}

func TestANominationForANodeThatIsNotSimulatedStopsNoPurchase(t *testing.T) {
	nominated := func(node string) func(*apiv1.Pod) {
		return func(pod *apiv1.Pod) { pod.Status.NominatedNodeName = node }
	}
	pending := []*apiv1.Pod{testutil.NewPod("for-reclaiming", nominated("reclaiming")), testutil.NewPod("for-healthy", nominated("healthy")), testutil.NewPod("other")}
	healthy := testutil.NewNode("healthy")
	ctx, _, _ := testutil.NewContext(nil, []*apiv1.Node{healthy, testutil.NewNode("reclaiming")})
	require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{healthy}, nil, nil))
	chain := pods.NewCombinedPodListProcessor([]pods.PodListProcessor{nominations{}, podlistprocessor.NewFilterOutExpendablePodListProcessor()})
	left, err := chain.Process(ctx, pending)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"for-reclaiming", "other"}, testutil.Names(left), "the scheduler is about to place the other one")
	assert.Equal(t, "reclaiming", pending[0].Status.NominatedNodeName, "it is the informer's")
}
