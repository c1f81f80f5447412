package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/status"
)

func TestStatusTellsWhatIsThereWhatIsBoughtAndWhatMayBe(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/price-cap"] = "4"
	f := newFixture(t, newFakeCloud(group))
	pools, refreshed := f.provider.Pools()
	assert.Empty(t, pools)
	assert.NotNil(t, pools, "a list, not null")
	assert.True(t, refreshed.IsZero())

	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	f.refresh()
	pools, refreshed = f.provider.Pools()
	assert.False(t, refreshed.IsZero())
	require.Len(t, pools, 1)
	said := pools[0]
	assert.Equal(t, []any{"asg-1", "request", 0, 10, 2, 1}, []any{said.ID, said.Targeting, said.MinSize, said.MaxSize, said.Live, said.Purchased})
	require.Len(t, said.Offerings, 4)
	offering := func(id string) status.Offering {
		for _, offering := range said.Offerings {
			if offering.ID == id {
				return offering
			}
		}
		require.Fail(t, "no such offering", id)
		return status.Offering{}
	}
	assert.Equal(t, status.Offering{
		ID: a10InA, InstanceType: a10, Zone: "zone-a", PurchaseOption: "spot", Live: 2, Purchased: 1, Room: 7,
		Price: ptr.To(3.0), PriceCap: ptr.To(4.0), UsefulCost: ptr.To(3.0),
	}, offering(a10InA))
	dear := offering("asg-1/" + v100 + "/zone-a/spot")
	assert.Equal(t, []any{0, status.BlockedPrice, 5.0}, []any{dear.Room, dear.BlockedBy, *dear.Price})
	assert.Nil(t, offering(a10InB).Price, "which is not known")
	require.Len(t, said.Purchases, 1)
	bought := said.Purchases[0]
	assert.Equal(t, []any{a10InA, 3, 1, "asa-0"}, []any{bought.Offering, bought.Count, bought.Missing, bought.Activity})
	assert.NotNil(t, bought.Accepted)
}

func TestStatusSaysWhyNothingCanBeBought(t *testing.T) {
	grouped := func(change func(*alicloud.ScalingGroup)) func(*fakeCloud) {
		return func(f *fakeCloud) {
			group := f.groups["asg-1"]
			change(&group)
			f.groups["asg-1"] = group
		}
	}
	for obstacle, tc := range map[string]struct {
		want   string
		change func(f *fakeCloud)
	}{
		"the scaling group is Inactive":     {status.BlockedOutOfOrder, grouped(func(group *alicloud.ScalingGroup) { group.LifecycleState = "Inactive" })},
		"pool asg-1 at its maximum: 2 of 2": {status.BlockedSize, grouped(func(group *alicloud.ScalingGroup) { group.MaxSize = 2 })},
		"scaling group asg-1 at its maximum: 3 of 3 (with 1 in standby)": {status.BlockedSize, func(f *fakeCloud) {
			grouped(func(group *alicloud.ScalingGroup) { group.MaxSize = 3 })(f)
			f.setState(alicloud.LifecycleStandby, f.launch(1, "asg-1", "", a10, "zone-a")...)
		}},
		"price cap 2 < price 3 CNY per hour": {status.BlockedPrice, grouped(func(group *alicloud.ScalingGroup) { group.Tags["gpu-spot.autoscaling/price-cap"] = "2" })},
		"no longer launched by the scaling group": {status.BlockedRetired, func(f *fakeCloud) {
			configuration := f.configurations["two-types"]
			configuration.InstanceTypes = []string{v100}
			f.configurations["two-types"] = configuration
		}},
	} {
		cloud := newFakeCloud(spotGroup("asg-1"))
		cloud.launch(2, "asg-1", "", a10, "zone-a")
		tc.change(cloud)
		f := newFixture(t, cloud)
		f.refresh()
		pools, _ := f.provider.Pools()
		require.Len(t, pools, 1, obstacle)
		for _, offering := range pools[0].Offerings {
			if offering.ID == a10InA {
				assert.Equal(t, tc.want, offering.BlockedBy)
				assert.Zero(t, offering.Room, obstacle)
			}
		}
		assert.Equal(t, obstacle, f.group(a10InA).Obstacle().String())
	}
}
