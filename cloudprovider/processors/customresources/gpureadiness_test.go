package customresources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// promise is the template of the offering of every node; nil where nodes are foreign.
type promise struct{ template *apiv1.Node }

func (p promise) TemplateOf(*apiv1.Node) *apiv1.Node { return p.template }

func TestGPUNodeIsReadyOnceItOffersWhatItsOfferingPromises(t *testing.T) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	template := func(resources ...string) *apiv1.Node {
		return testutil.NewNode("template", append(resources, "cpu", "8")...)
	}
	for name, test := range map[string]struct {
		promised *apiv1.Node
		offers   []string
		labelled bool
		ready    bool
	}{
		"whole GPUs":                              {template("nvidia.com/gpu", "8"), []string{"nvidia.com/gpu", "8"}, true, true},
		"whole GPUs, before the driver runs":      {template("nvidia.com/gpu", "8"), nil, true, false},
		"no driver and no label yet":              {template("nvidia.com/gpu", "8"), nil, false, false},
		"a GPU of which the device plugin says 0": {template("nvidia.com/gpu", "8"), []string{"nvidia.com/gpu", "0"}, true, false},
		"a broken GPU among eight":                {template("nvidia.com/gpu", "8"), []string{"nvidia.com/gpu", "7"}, true, true},
		"a label that comes late":                 {template("nvidia.com/gpu", "8"), []string{"nvidia.com/gpu", "8"}, false, true},
		"shared memory":                           {template("nvidia.com/gpu", "0", "aliyun.com/gpu-mem", "22", "aliyun.com/gpu-count", "1"), []string{"aliyun.com/gpu-mem", "22", "aliyun.com/gpu-count", "1"}, true, true},
		"shared memory that is not there yet":     {template("nvidia.com/gpu", "0", "aliyun.com/gpu-mem", "22", "aliyun.com/gpu-count", "1"), []string{"aliyun.com/gpu-count", "1"}, true, false},
		"GPUs by topology":                        {template("nvidia.com/gpu", "0", "aliyun.com/gpu", "8"), []string{"aliyun.com/gpu", "8"}, true, true},
		"GPUs in another way than promised":       {template("nvidia.com/gpu", "0", "aliyun.com/gpu-mem", "22"), []string{"nvidia.com/gpu", "1"}, true, false},
		"slices of GPUs":                          {template("nvidia.com/gpu", "0", "nvidia.com/mig-1g.10gb", "7"), []string{"nvidia.com/mig-1g.10gb", "7"}, true, true},
		"an offering without GPUs":                {template(), nil, false, true},
		"a label that the offering knows better":  {template("nvidia.com/gpu", "0"), nil, true, true},
		"a foreign node before its driver runs":   {nil, nil, true, false},
		"a foreign node without GPUs":             {nil, nil, false, true},
		"a foreign node that shares its GPUs":     {nil, []string{"aliyun.com/gpu-mem", "22"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := testutil.NewNode("n", append(test.offers, "cpu", "8")...)
			if test.labelled {
				node.Labels[provider.GPULabel()] = "V100"
			}
			ctx, _, _ := testutil.NewContext(nil, nil)
			ctx.CloudProvider = provider
			p := NewGPUReadiness(promise{test.promised}, customresources.NewDefaultCustomResourcesProcessor(false))
			nodes := []*apiv1.Node{node}
			all, ready := p.FilterOutNodesWithUnreadyResources(ctx, nodes, nodes, nil)
			assert.Len(t, all, 1)
			assert.Equal(t, test.ready, len(ready) == 1)
			readiness, err := kubeutil.GetNodeReadiness(all[0])
			require.NoError(t, err)
			assert.Equal(t, test.ready, readiness.Ready)
			assert.Same(t, node, nodes[0], "the list of the caller is left as it is")
		})
	}
}

func TestGPULimitsLeaveOutWhatCannotBeCounted(t *testing.T) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	ctx, _, _ := testutil.NewContext(nil, nil)
	ctx.CloudProvider = provider
	p := NewGPUReadiness(promise{}, customresources.NewDefaultCustomResourcesProcessor(false))
	for name, test := range map[string]struct {
		resource string
		count    []customresources.CustomResourceTarget
	}{
		"whole GPUs count":                       {"nvidia.com/gpu", []customresources.CustomResourceTarget{{ResourceType: "V100", ResourceCount: 2}}},
		"shared GPUs do not":                     {"aliyun.com/gpu-mem", nil},
		"GPUs by topology do not":                {"aliyun.com/gpu", nil},
		"a foreign node without driver does not": {"cpu", nil},
	} {
		t.Run(name, func(t *testing.T) {
			node := testutil.NewNode("n", test.resource, "2")
			node.Labels[provider.GPULabel()] = "V100"
			targets, err := p.GetNodeResourceTargets(ctx, node, nil)
			require.Nil(t, err)
			assert.Equal(t, test.count, targets)
		})
	}
}
