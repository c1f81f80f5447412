package scaledown

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

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
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

func (k keeps) MayGiveBack(node *apiv1.Node) bool { return !k[node.Name] }

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
		{"busy", testutil.NewPods(3, "busy", testutil.Replicated)},
		{"seen-before", testutil.NewPods(1, "seen", testutil.Replicated)},
		{"unknown", nil},
		{"only-daemons", testutil.NewPods(2, "daemon", daemon)},
		{"bare-pod", testutil.NewPods(1, "bare")},
		{"empty", nil},
		{"protected", nil},
		{"training", testutil.NewPods(1, "train", testutil.ReplicatedBy("training"))},
		{"training-of-a-custom-resource", testutil.NewPods(1, "worker", testutil.OwnedBy("PyTorchJob"))},
	} {
		node := testutil.NewNode(of.node)
		provider.AddNode("group", node)
		all = append(all, node)
		if of.node != "unknown" {
			cluster.infos[of.node] = framework.NewTestNodeInfo(node, of.pods...)
		}
	}
	ctx, _, _ := testutil.NewContext(nil, all)
	ctx.CloudProvider = provider
	training := NewTrainingPods(jobsByOwner{"training": {job: true}, "owner": {job: true}})
	deletion := options.NodeDeleteOptions{SkipNodesWithCustomControllerPods: true}
	candidates := NewCandidates(cluster, keeps{"protected": true}, training, deletion, append(rules.Default(deletion), training), testingclock.NewFakePassiveClock(testutil.Epoch))
	candidates.UpdateScaleDownCandidates([]*apiv1.Node{testutil.NewNode("seen-before"), testutil.NewNode("gone")}, testutil.Epoch)
	ordered, err := candidates.GetScaleDownCandidates(ctx, all)
	require.Nil(t, err)
	assert.Equal(t, []string{"only-daemons", "empty", "seen-before", "busy", "unknown", "bare-pod"}, testutil.NodeNames(ordered))
	assert.Equal(t, len(all)-1, cluster.asked, "once about each that may go at all")
}
