package processors

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
	running := inPhase(apiv1.PodRunning)
	train := replicatedBy("train")
	eightGPUs := func(name string) *apiv1.Node {
		return newNode(name, "cpu", "64", "memory", "256Gi", "pods", "64", "nvidia.com/gpu", "8")
	}
	for name, test := range map[string]struct {
		pod   *apiv1.Pod
		node  *apiv1.Node
		moves bool
	}{
		"a GPU pod of a job stays":                       {newPod("p", train, running), nil, false},
		"also one that has just been given the node":     {newPod("p", train), nil, false},
		"one that says that it may be moved is":          {newPod("p", train, running, annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")), nil, true},
		"a pod of a job that asks for no GPU is":         {newPod("p", train, running, withoutGPU), nil, true},
		"a launcher stays without a GPU too":             {newPod("p", replicatedBy("launch"), running, withoutGPU), nil, false},
		"a GPU pod of no job is":                         {newPod("p", replicatedBy("serve"), running), nil, true},
		"one that has succeeded keeps nothing":           {newPod("p", train, inPhase(apiv1.PodSucceeded), neverRestarted), nil, true},
		"one that the scheduler has not placed neither":  {newPod("p", train, unschedulable), nil, true},
		"nor does one on a node that is silent":          {newPod("p", train, running), silentKubelet(eightGPUs("a")), true},
		"but one on a node that does not offer its GPUs": {newPod("p", train, running), kubeutil.GetUnreadyNodeCopy(eightGPUs("a"), kubeutil.ResourceUnready), false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := test.node, eightGPUs("b")
			if a == nil {
				a = eightGPUs("a")
			}
			core := newRealCore(t, nil, nil, true)
			test.pod.Spec.NodeName = "a"
			other := newPod("other", replicatedBy("serve"), onNode("b"), running)
			require.NoError(t, core.ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{a, b}, []*apiv1.Pod{test.pod, other}, nil))
			stays := NewTrainingStays(jobsByOwner{"train": {job: true}, "launch": {job: true, vital: true}})
			drainability := append(rules.Default(options.NodeDeleteOptions{}), stays)

			removal := simulator.NewRemovalSimulator(nil, core.ctx.ClusterSnapshot, options.NodeDeleteOptions{}, drainability, false)
			remove, keep := removal.FindNodesToRemove([]string{"a"}, []string{"a", "b"}, time.Now(), nil)
			assert.Equal(t, test.moves, len(remove) == 1)
			assert.Equal(t, !test.moves, len(keep) == 1 && keep[0].Reason == simulator.BlockedByPod)

			provider := testprovider.NewTestCloudProviderBuilder().Build()
			provider.AddNodeGroup("group", 0, 100, 2)
			provider.AddNode("group", a)
			core.ctx.CloudProvider = provider
			candidates := NewCandidates(core.ctx.ClusterSnapshot, keeps{}, stays, options.NodeDeleteOptions{}, drainability, testingclock.NewFakePassiveClock(epoch))
			found, err := candidates.GetScaleDownCandidates(core.ctx, []*apiv1.Node{a})
			require.Nil(t, err)
			assert.Equal(t, test.moves, len(found) == 1, "core does not even look at it, and does once the training is over")
		})
	}
}

func neverRestarted(pod *apiv1.Pod) { pod.Spec.RestartPolicy = apiv1.RestartPolicyNever }
