package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/template"
)

const (
	// fourA10 is an instance type with four GPUs, plain is one without any.
	fourA10 = "ecs.gn7i-c32g1.32xlarge"
	plain   = "ecs.c7.4xlarge"
)

// launching sets the instance types of the scaling configuration.
func launching(cloud *fakeCloud, types ...string) *fakeCloud {
	configuration := cloud.configurations["two-types"]
	configuration.InstanceTypes = types
	cloud.configurations["two-types"] = configuration
	return cloud
}

func tagged(group alicloud.ScalingGroup, key, value string) alicloud.ScalingGroup {
	group.Tags[key] = value
	return group
}

func TestNodesWithGPUsAreBoughtForCPUPodsWhereTheTagAllowsIt(t *testing.T) {
	for name, test := range map[string]struct {
		group alicloud.ScalingGroup
		types []string
		buys  map[string]bool
	}{
		"not without": {
			spotGroup("asg-1"), []string{a10, plain},
			map[string]bool{a10InA: false, "asg-1/" + plain + "/zone-a/spot": true, "asg-2/none/zone-a/spot": false},
		},
		"with it": {
			tagged(spotGroup("asg-1"), "gpu-spot.autoscaling/buy-for-cpu-pods", "true"), []string{a10, plain},
			map[string]bool{a10InA: true, "asg-1/" + plain + "/zone-a/spot": true},
		},
		"not where the tags say that its nodes have GPUs": {
			tagged(spotGroup("asg-1"), "gpu-spot.autoscaling/resources/nvidia.com/gpu", "1"), []string{plain},
			map[string]bool{"asg-1/" + plain + "/zone-a/spot": false},
		},
		"not where ESS may deliver nodes with GPUs": {
			tagged(spotGroup("asg-1"), "gpu-spot.autoscaling/targeting", "whole"), []string{a10, plain},
			map[string]bool{"asg-1/any/any/spot": false},
		},
		"where ESS may deliver none": {
			tagged(spotGroup("asg-1"), "gpu-spot.autoscaling/targeting", "whole"), []string{plain},
			map[string]bool{"asg-1/any/any/spot": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, launching(newFakeCloud(test.group), test.types...))
			f.refresh()
			for id, buys := range test.buys {
				assert.Equal(t, buys, f.provider.BuysForCPUPods(id), id)
			}
		})
	}
}

func TestNodeIsKnownByWhatItsOfferingPromises(t *testing.T) {
	cloud := newFakeCloud(tagged(spotGroup("asg-1"), "gpu-spot.autoscaling/shared-gpu", "true"))
	ours := cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")
	f := newFixture(t, launching(cloud, a10))
	f.refresh()
	node := f.provider.TemplateOf(nodeOf(ours[0]))
	require.NotNil(t, node)
	assert.True(t, template.Offers(node.Status.Allocatable, api.ResourceGPUMemory))
	assert.False(t, template.Offers(node.Status.Allocatable, api.ResourceGPU))
	assert.Nil(t, f.provider.TemplateOf(nodeOf("i-foreign")))
	assert.Nil(t, f.provider.TemplateOf(&apiv1.Node{}))
}

func TestPoolThatSharesTheMemoryOfSeveralGPUsIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		key, value string
		types      []string
		refused    bool
	}{
		"by our tag":            {"gpu-spot.autoscaling/shared-gpu", "true", []string{a10, fourA10}, true},
		"by ACK's label":        {"k8s.io/cluster-autoscaler/node-template/label/ack.node.gpu.schedule", "core_mem", []string{fourA10}, true},
		"by the amount":         {"gpu-spot.autoscaling/resources/aliyun.com/gpu-mem", "88", []string{fourA10}, true},
		"one GPU may be shared": {"gpu-spot.autoscaling/shared-gpu", "true", []string{a10}, false},
		"whole GPUs":            {"gpu-spot.autoscaling/shared-gpu", "false", []string{fourA10}, false},
		"GPUs by topology":      {"k8s.io/cluster-autoscaler/node-template/label/ack.node.gpu.schedule", "topology", []string{fourA10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, launching(newFakeCloud(tagged(spotGroup("asg-1"), test.key, test.value)), test.types...))
			f.refresh()
			problems := f.events.With("SpotPoolProblem")
			if !test.refused {
				assert.Empty(t, problems)
				assert.NotEmpty(t, f.groupIDs())
				return
			}
			assert.Empty(t, f.groupIDs())
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0], "asg-1 (shared_gpu)")
			assert.Contains(t, problems[0], fourA10+" has 4 GPUs")
		})
	}
}
