package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	// fourA10 is a type of four GPUs, plain one of none.
	fourA10 = "ecs.gn7i-c32g1.32xlarge"
	plain   = "ecs.c7.4xlarge"
)

// launching makes the pool's configuration launch these types.
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
