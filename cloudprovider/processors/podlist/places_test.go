package podlist

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
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
	assert.True(t, isUpcomingOf(id, upcoming.Node().Name), upcoming.Node().Name)

	assert.False(t, isUpcomingOf(id, template.Node().Name), "the template itself")
	assert.False(t, isUpcomingOf("asg-1/ecs.gn7i-c8g1.2xlarge/zone-a", upcoming.Node().Name), "another node group")
	assert.False(t, isUpcomingOf(id, "ap-southeast-1.10.0.0.1"), "a node that exists")
}
