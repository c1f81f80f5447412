package ess

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

func TestEachObstacleHasItsCodeAndNamesWhatWouldMendIt(t *testing.T) {
	tagged := func(tags map[string]string) func(*alicloud.ScalingGroup) {
		return func(group *alicloud.ScalingGroup) {
			for key, value := range tags {
				group.Tags["gpu-spot.autoscaling/"+key] = value
			}
		}
	}
	for name, tc := range map[string]struct {
		group     func(*alicloud.ScalingGroup)
		cloud     func(*fakeCloud)
		reclaimed int
		id        string
		code      reasons.Code
		message   string
		mend      string
	}{
		"a price above the cap": {
			group: tagged(map[string]string{"price-cap": "0.01"}), id: a10InA, code: reasons.PriceCap, message: "price cap 0.01 < price 3 CNY per hour",
			mend: "Raise the tag gpu-spot.autoscaling/price-cap of pool asg-1 to at least 3 CNY per hour, or wait until the price falls.",
		},
		"a price above two caps": {
			group: tagged(map[string]string{"price-cap": "2", "price-cap/" + a10: "1"}), id: a10InA, code: reasons.PriceCap, message: "price cap 1 < price 3 CNY per hour",
			mend: "Raise the tag gpu-spot.autoscaling/price-cap of pool asg-1 to at least 3 CNY per hour and the tag gpu-spot.autoscaling/price-cap/" + a10 +
				" of pool asg-1 to at least 3 CNY per hour, or wait until the price falls.",
		},
		"a cap for each GPU": {
			group: tagged(map[string]string{"price-cap-per-gpu": "2"}), id: a10InA, code: reasons.PriceCap, message: "price cap 2 < price 3 CNY per hour",
			mend: "Raise the tag gpu-spot.autoscaling/price-cap-per-gpu of pool asg-1 to at least 3 CNY per GPU and hour, or wait until the price falls.",
		},
		"no price to compare with the cap": {
			group: tagged(map[string]string{"price-cap": "9"}), id: a10InB, code: reasons.NoPrice, message: "no recent price to compare with the price cap of 9",
			mend: "Wait for a price of " + a10 + " in zone-b, or remove the price cap of pool asg-1.",
		},
		"a pool at its maximum": {
			group: tagged(map[string]string{"max-size": "2"}), id: a10InA, code: reasons.PoolMaximum, message: "pool asg-1 at its maximum: 2 of 2",
			mend: "Raise the maximum of pool asg-1 above 2 (tag gpu-spot.autoscaling/max-size, and the maximum of the scaling group).",
		},
		"a scaling group that is full with what is reclaimed": {
			group: func(group *alicloud.ScalingGroup) { group.MaxSize = 2 }, reclaimed: 1, id: a10InA, code: reasons.GroupMaximum,
			message: "scaling group asg-1 at its maximum: 2 of 2 (with 1 under reclaim)",
			mend:    "Wait until the instances that leave are gone, or raise the maximum of scaling group asg-1 above 2.",
		},
		"a suspended scaling group": {
			group: func(group *alicloud.ScalingGroup) { group.LifecycleState = "Inactive" }, id: a10InA, code: reasons.OutOfOrder,
			message: "the scaling group is Inactive", mend: "Resume the scaling group, or its process ScaleOut.",
		},
		"a type that is not launched any more": {
			cloud: func(f *fakeCloud) {
				configuration := f.configurations["two-types"]
				configuration.InstanceTypes = []string{v100}
				f.configurations["two-types"] = configuration
			}, id: a10InA, code: reasons.Retired, message: "no longer launched by the scaling group",
			mend: "Add the instance type to the scaling configuration again, and its vSwitch to the scaling group.",
		},
		"nothing": {id: a10InA},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			if tc.group != nil {
				tc.group(&group)
			}
			cloud := newFakeCloud(group)
			ids := cloud.launch(2, "asg-1", "", a10, "zone-a")
			if tc.cloud != nil {
				tc.cloud(cloud)
			}
			f := newFixture(t, cloud)
			f.reclaiming = sets.New(ids[:tc.reclaimed]...)
			f.loop()
			obstacle := f.group(tc.id).Obstacle()
			if tc.code == "" {
				assert.Nil(t, obstacle)
				return
			}
			require.NotNil(t, obstacle)
			assert.Equal(t, []string{string(tc.code), tc.message, tc.mend}, []string{string(obstacle.Code), obstacle.Message, obstacle.Mend})
		})
	}
}

func TestAShortageSaysWhenItIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(spotGroup("asg-1"))
		f := newFixture(t, cloud)
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		cloud.end("asa-0", "OperationDenied.NoStock", cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
		cloud.endAs("asa-0", "Warning")
		f.refresh()
		obstacle := f.group(a10InA).Obstacle()
		require.NotNil(t, obstacle)
		assert.Equal(t, reasons.NoStock, obstacle.Code)
		assert.Regexp(t, `^Wait until \d\d:\d\d UTC, when `+a10+` in zone-a is asked for again, or add other instance types`, obstacle.Mend)
	})
}
