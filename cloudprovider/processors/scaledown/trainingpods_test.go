package scaledown

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/options"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// jobsByOwner knows the pods of jobs by their owners.
type jobsByOwner map[string]struct{ job, vital bool }

func (j jobsByOwner) PartOf(pod *apiv1.Pod) (job, vital bool) {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		of := j[owner.Name]
		return of.job, of.vital
	}
	return false, false
}

func silentKubelet(node *apiv1.Node) *apiv1.Node {
	node.Status.Conditions = []apiv1.NodeCondition{{Type: apiv1.NodeReady, Status: apiv1.ConditionUnknown, Reason: "NodeStatusUnknown"}}
	return node
}

// Two nodes of eight GPUs each have one pod: core would move the one to the other, and give a node back.
func TestScaleDownMovesNoPodsThatTrain(t *testing.T) {
	running := testutil.InPhase(apiv1.PodRunning)
	train := testutil.ReplicatedBy("train")
	eightGPUs := func(name string) *apiv1.Node {
		return testutil.NewNode(name, "cpu", "64", "memory", "256Gi", "pods", "64", "nvidia.com/gpu", "8")
	}
	for name, test := range map[string]struct {
		pod   *apiv1.Pod
		node  *apiv1.Node
		moves bool
	}{
		"a GPU pod of a job stays":                       {testutil.NewPod("p", train, running), nil, false},
		"also one that has just been given the node":     {testutil.NewPod("p", train), nil, false},
		"one that says that it may be moved is":          {testutil.NewPod("p", train, running, testutil.Annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")), nil, true},
		"a pod of a job that asks for no GPU is":         {testutil.NewPod("p", train, running, testutil.WithoutGPU), nil, true},
		"a launcher stays without a GPU too":             {testutil.NewPod("p", testutil.ReplicatedBy("launch"), running, testutil.WithoutGPU), nil, false},
		"a GPU pod of no job is":                         {testutil.NewPod("p", testutil.ReplicatedBy("serve"), running), nil, true},
		"one that has succeeded keeps nothing":           {testutil.NewPod("p", train, testutil.InPhase(apiv1.PodSucceeded), neverRestarted), nil, true},
		"one that the scheduler has not placed neither":  {testutil.NewPod("p", train, testutil.Unschedulable), nil, true},
		"nor does one on a node that is silent":          {testutil.NewPod("p", train, running), silentKubelet(eightGPUs("a")), true},
		"but one on a node that does not offer its GPUs": {testutil.NewPod("p", train, running), kubeutil.GetUnreadyNodeCopy(eightGPUs("a"), kubeutil.ResourceUnready), false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := test.node, eightGPUs("b")
			if a == nil {
				a = eightGPUs("a")
			}
			ctx, _, _ := testutil.NewContext(nil, nil)
			test.pod.Spec.NodeName = "a"
			other := testutil.NewPod("other", testutil.ReplicatedBy("serve"), testutil.OnNode("b"), running)
			require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{a, b}, []*apiv1.Pod{test.pod, other}, nil))
			training := NewTrainingPods(jobsByOwner{"train": {job: true}, "launch": {job: true, vital: true}})
			drainability := append(rules.Default(options.NodeDeleteOptions{}), training)

			removal := simulator.NewRemovalSimulator(nil, ctx.ClusterSnapshot, options.NodeDeleteOptions{}, drainability, false)
			remove, keep := removal.FindNodesToRemove([]string{"a"}, []string{"a", "b"}, time.Now(), nil)
			assert.Equal(t, test.moves, len(remove) == 1)
			assert.Equal(t, !test.moves, len(keep) == 1 && keep[0].Reason == simulator.BlockedByPod)

			provider := testprovider.NewTestCloudProviderBuilder().Build()
			provider.AddNodeGroup("group", 0, 100, 2)
			provider.AddNode("group", a)
			ctx.CloudProvider = provider
			candidates := NewCandidates(ctx.ClusterSnapshot, keeps{}, training, options.NodeDeleteOptions{}, drainability, testingclock.NewFakePassiveClock(testutil.Epoch))
			found, err := candidates.GetScaleDownCandidates(ctx, []*apiv1.Node{a})
			require.Nil(t, err)
			assert.Equal(t, test.moves, len(found) == 1, "core does not even look at it, and does once the training is over")
		})
	}
}

func neverRestarted(pod *apiv1.Pod) { pod.Spec.RestartPolicy = apiv1.RestartPolicyNever }
