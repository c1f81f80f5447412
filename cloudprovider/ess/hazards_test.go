package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestHazardsOfAScalingGroupAreTold(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*alicloud.ScalingGroup)
		says   []string
	}{
		"none": {func(*alicloud.ScalingGroup) {}, nil},
		"pay-as-you-go where spot is out": {
			func(g *alicloud.ScalingGroup) {
				g.MultiAZPolicy, g.CompensateWithOnDemand = alicloud.MultiAZCostOptimized, true
			},
			[]string{"compensate_with_on_demand"},
		},
		"the same where it takes no effect": {
			func(g *alicloud.ScalingGroup) { g.MultiAZPolicy, g.CompensateWithOnDemand = "PRIORITY", true }, nil,
		},
		"replacements of its own": {
			func(g *alicloud.ScalingGroup) {
				g.MultiAZPolicy, g.SpotInstanceRemedy = alicloud.MultiAZCostOptimized, true
			},
			[]string{"spot_instance_remedy"},
		},
		"the same in a composable group": {
			func(g *alicloud.ScalingGroup) {
				g.MultiAZPolicy, g.SpotInstanceRemedy = alicloud.MultiAZComposable, true
			}, nil,
		},
		"pay-as-you-go first":   {func(g *alicloud.ScalingGroup) { g.OnDemandBase = 2 }, []string{"on_demand_base", "OnDemandBaseCapacity is 2"}},
		"pay-as-you-go in part": {func(g *alicloud.ScalingGroup) { g.OnDemandPercentage = 30 }, []string{"on_demand_percentage", "30%: "}},
		"pay-as-you-go, unasked": {
			func(g *alicloud.ScalingGroup) {
				g.MultiAZPolicy, g.OnDemandPercentage = alicloud.MultiAZComposable, 100
			},
			[]string{"on_demand_percentage", "default where MultiAZPolicy is COMPOSABLE"},
		},
		"spot in place of pay-as-you-go": {func(g *alicloud.ScalingGroup) { g.SpotAutoReplaceOnDemand = true }, []string{"spot_auto_replace"}},
		"a desired capacity": {
			func(g *alicloud.ScalingGroup) { g.DesiredCapacity = ptr.To(0) },
			[]string{"desired_capacity", "ModifyScalingGroup with DisableDesiredCapacity=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			test.change(&group)
			f := newFixture(t, newFakeCloud(group))
			f.refresh()
			f.refresh()
			said := f.events.With("SpotPoolProblem")
			if len(test.says) == 0 {
				assert.Empty(t, said)
				return
			}
			require.Len(t, said, 1, "said once")
			for _, text := range test.says {
				assert.Contains(t, said[0], text)
			}
			assert.Equal(t, 10, f.group(a10InA).MaxSize(), "a hazard is the operator's to judge")
		})
	}
}

func TestPoolThatGoesOutOfOrderStaysAsItWasAndIsNotBought(t *testing.T) {
	for name, spoil := range map[string]func(*fakeCloud, *alicloud.ScalingGroup){
		"a tag is misspelt":                 func(_ *fakeCloud, g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/cooldwon"] = "5m" },
		"its scaling configuration is gone": func(_ *fakeCloud, g *alicloud.ScalingGroup) { g.ActiveScalingConfigurationID = "asc-gone" },
		"its vSwitches are gone":            func(_ *fakeCloud, g *alicloud.ScalingGroup) { g.VSwitchIDs = []string{"vsw-gone"} },
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			group.Tags["gpu-spot.autoscaling/min-size"] = "1"
			f := newFixture(t, newFakeCloud(group))
			ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
			f.refresh()
			require.NoError(t, f.group(a10InA).IncreaseSize(8))

			spoilt := f.cloud.groups["asg-1"]
			spoil(f.cloud, &spoilt)
			f.cloud.groups["asg-1"] = spoilt
			f.refresh()
			assert.Equal(t, 9, f.target(a10InA), "eight are coming: core would buy them elsewhere")
			assert.Equal(t, 9, f.group(a10InA).MaxSize())
			assert.Error(t, f.group(a10InB).IncreaseSize(1))
			assert.Len(t, f.events.With("SpotPoolProblem"), 1)
			status, ours := f.provider.PoolOf(nodeOf(ids[0]))
			assert.True(t, ours)
			assert.Equal(t, 1, status.MinSize)

			f.cloud.end("asa-0", "", f.cloud.launch(8, "asg-1", "asa-0", a10, "zone-a")...)
			f.refresh()
			assert.Equal(t, 9, f.target(a10InA))

			f.cloud.groups["asg-1"] = spotGroup("asg-1")
			f.refresh()
			assert.Equal(t, 10, f.group(a10InA).MaxSize(), "it is in order again")
		})
	}
}
