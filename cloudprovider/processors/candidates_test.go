package processors

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/options"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// snapshot is a cluster, and counts how often it is asked about a node.
type snapshot struct {
	infos map[string]*framework.NodeInfo
	asked int
}

func (s *snapshot) GetNodeInfo(name string) (*framework.NodeInfo, error) {
	s.asked++
	if info := s.infos[name]; info != nil {
		return info, nil
	}
	return nil, fmt.Errorf("no node %s", name)
}

// keeps are the nodes that may not be given back.
type keeps map[string]bool

func (k keeps) Releasable(node *apiv1.Node) bool { return !k[node.Name] }

func replicated(pod *apiv1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}}
}

func daemon(pod *apiv1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: ptr.To(true)}}
}

func TestScaleDownLooksAtEmptyNodesFirst(t *testing.T) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	provider.AddNodeGroup("group", 0, 100, 6)
	cluster := &snapshot{infos: map[string]*framework.NodeInfo{}}
	var all []*apiv1.Node
	for _, of := range []struct {
		node string
		pods []*apiv1.Pod
	}{
		{"busy", newPods(3, "busy", replicated)},
		{"seen-before", newPods(1, "seen", replicated)},
		{"unknown", nil},
		{"only-daemons", newPods(2, "daemon", daemon)},
		{"bare-pod", newPods(1, "bare")},
		{"empty", nil},
		{"protected", nil},
		{"training", newPods(1, "train", replicatedBy("training"))},
		{"training-of-a-custom-resource", newPods(1, "worker", ownedBy("PyTorchJob"))},
	} {
		node := newNode(of.node)
		provider.AddNode("group", node)
		all = append(all, node)
		if of.node != "unknown" {
			cluster.infos[of.node] = framework.NewTestNodeInfo(node, of.pods...)
		}
	}
	ctx, _, _ := newContext(nil, all)
	ctx.CloudProvider = provider
	stays := NewTrainingStays(jobsByOwner{"training": {job: true}, "owner": {job: true}})
	deletion := options.NodeDeleteOptions{SkipNodesWithCustomControllerPods: true}
	candidates := NewCandidates(cluster, keeps{"protected": true}, stays, deletion, append(rules.Default(deletion), stays), testingclock.NewFakePassiveClock(epoch))
	candidates.UpdateScaleDownCandidates([]*apiv1.Node{newNode("seen-before"), newNode("gone")}, epoch)
	ordered, err := candidates.GetScaleDownCandidates(ctx, all)
	require.Nil(t, err)
	assert.Equal(t, []string{"only-daemons", "empty", "seen-before", "busy", "unknown", "bare-pod"}, nodeNames(ordered))
	assert.Equal(t, len(all)-1, cluster.asked, "once about each that may go at all")
}
