package processors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
)

type doom struct {
	doomed, outOfService map[string]bool
	begun                []string
}

func (d *doom) BeginLoop(nodes []*apiv1.Node)  { d.begun = nodeNames(nodes) }
func (d *doom) IsDoomed(node *apiv1.Node) bool { return d.doomed[node.Name] }

func (d *doom) OutOfService(node *apiv1.Node) bool { return d.outOfService[node.Name] }

func TestDyingNodes(t *testing.T) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	gpuNode := func(name string, resources ...string) *apiv1.Node {
		node := newNode(name, append(resources, "cpu", "8")...)
		node.Labels[provider.GPULabel()] = "V100"
		return node
	}
	whole, booting := gpuNode("whole", "nvidia.com/gpu", "8"), gpuNode("booting")
	shared, dying := gpuNode("shared", "aliyun.com/gpu-mem", "32"), gpuNode("dying", "nvidia.com/gpu", "8")
	leaving := gpuNode("leaving", "nvidia.com/gpu", "8")

	ctx, _, _ := newContext(nil, nil)
	ctx.CloudProvider = provider
	d := &doom{doomed: map[string]bool{"dying": true}, outOfService: map[string]bool{"leaving": true}}
	p := NewDyingNodes(d, customresources.NewDefaultCustomResourcesProcessor(false))
	everything := []*apiv1.Node{whole, booting, shared, dying, leaving}
	all, ready := p.FilterOutNodesWithUnreadyResources(ctx, everything, everything, nil)

	assert.ElementsMatch(t, []string{"whole", "booting", "shared", "dying", "leaving"}, d.begun, "the loop begins with all nodes")
	assert.ElementsMatch(t, []string{"whole", "booting", "shared"}, nodeNames(all), "what is doomed or given back is no node")
	assert.ElementsMatch(t, []string{"whole", "shared"}, nodeNames(ready), "shared GPUs are ready, missing drivers are not")
	for _, node := range all {
		readiness, err := kubeutil.GetNodeReadiness(node)
		require.NoError(t, err)
		assert.Equal(t, node.Name != "booting", readiness.Ready, node.Name)
	}
}

func TestGPULimitsLeaveOutWhatCannotBeCounted(t *testing.T) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	ctx, _, _ := newContext(nil, nil)
	ctx.CloudProvider = provider
	p := NewDyingNodes(&doom{}, customresources.NewDefaultCustomResourcesProcessor(false))
	for name, test := range map[string]struct {
		resource string
		count    []customresources.CustomResourceTarget
	}{
		"whole GPUs count":                       {"nvidia.com/gpu", []customresources.CustomResourceTarget{{ResourceType: "V100", ResourceCount: 2}}},
		"shared GPUs do not":                     {"aliyun.com/gpu-mem", nil},
		"a foreign node without driver does not": {"cpu", nil},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", test.resource, "2")
			node.Labels[provider.GPULabel()] = "V100"
			targets, err := p.GetNodeResourceTargets(ctx, node, nil)
			require.Nil(t, err)
			assert.Equal(t, test.count, targets)
		})
	}
}
