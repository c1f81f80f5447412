package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestWhatAPoolLacksOfItsMinimum(t *testing.T) {
	for name, test := range map[string]struct {
		minimum string
		change  func(*fixture, *alicloud.ScalingGroup)
		missing int // 0: the pool is not returned
	}{
		"all of it where there is nothing": {"3", nil, 3},
		"no minimum":                       {"0", nil, 0},
		"what there is counts":             {"3", func(f *fixture, _ *alicloud.ScalingGroup) { f.cloud.launch(2, "asg-1", "", a10, "zone-a") }, 1},
		"enough of several offerings counts": {"2", func(f *fixture, _ *alicloud.ScalingGroup) {
			f.cloud.launch(1, "asg-1", "", a10, "zone-a")
			f.cloud.launch(1, "asg-1", "", v100, "zone-b")
		}, 0},
		"what is being reclaimed does not": {"2", func(f *fixture, _ *alicloud.ScalingGroup) {
			ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
			f.reclaiming.Insert(ids[0])
		}, 1},
		"ESS itself buys up to the minimum of the scaling group": {"3", func(_ *fixture, g *alicloud.ScalingGroup) { g.MinSize = 2 }, 1},
		"and all, where that is the pool's":                      {"2", func(_ *fixture, g *alicloud.ScalingGroup) { g.MinSize = 2 }, 0},
		"nothing can be bought":                                  {"2", func(_ *fixture, g *alicloud.ScalingGroup) { g.SystemSuspended = true }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			group.Tags["gpu-spot.autoscaling/min-size"] = test.minimum
			f := newFixture(t, newFakeCloud(group))
			if test.change != nil {
				test.change(f, &group)
				f.cloud.groups["asg-1"] = group
			}
			f.provider.BeginLoop(nil)
			f.refresh()
			short := f.provider.Shortfalls()
			if test.missing == 0 {
				assert.Empty(t, short)
				return
			}
			require.Len(t, short, 1)
			assert.Equal(t, "asg-1", short[0].PoolID)
			assert.Equal(t, test.missing, short[0].Missing)
			assert.Len(t, short[0].Offerings, 4)
		})
	}
}

func TestWhatIsBoughtForAMinimumIsNotBoughtAgain(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/min-size"] = "3"
	f := newFixture(t, newFakeCloud(group))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	require.Len(t, f.provider.Shortfalls(), 1)
	assert.Equal(t, 1, f.provider.Shortfalls()[0].Missing)
}

func TestOnlyOfferingsTooDearForTheirCapAreLeftOutOfAShortfall(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/min-size"] = "1"
	group.Tags["gpu-spot.autoscaling/price-cap"] = "4" // a10 in zone-a costs 3, v100 5
	group.VSwitchIDs = []string{"vsw-a"}
	f := newFixture(t, newFakeCloud(group))
	f.refresh()
	short := f.provider.Shortfalls()
	require.Len(t, short, 1)
	require.Len(t, short[0].Offerings, 1)
	assert.Equal(t, a10InA, short[0].Offerings[0].Id())
}
