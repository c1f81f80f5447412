package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/status"
)

const otherA10InA = "asg-2/" + a10 + "/zone-a/spot"

// room is how many more instances core may buy of the node group.
func (f *fixture) room(groupID string) int {
	return f.group(groupID).MaxSize() - f.target(groupID)
}

func TestWhatIsOutOfStockInOnePoolIsNotAskedForInAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2"))
		f := newFixture(t, cloud)
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		cloud.end("asa-0", "OperationDenied.NoStock", cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
		cloud.endAs("asa-0", "Warning")
		f.refresh()
		assert.Zero(t, f.room(otherA10InA))
		assert.Regexp(t, `^out of stock: pool asg-1 got 1 of 3 at \d\d:\d\d:\d\d, and it is not asked for again before \d\d:\d\d:\d\d UTC$`, f.group(otherA10InA).Obstacle().String())
		require.Error(t, f.group(otherA10InA).IncreaseSize(1))
		pools, _ := f.provider.Pools()
		for _, offering := range pools[1].Offerings {
			if offering.ID == otherA10InA {
				assert.Equal(t, []any{0, status.BlockedStock}, []any{offering.Room, offering.BlockedBy})
			}
		}
		for _, id := range []string{a10InB, v100InA, "asg-2/" + a10 + "/zone-b/spot"} {
			assert.Positive(t, f.room(id), "another zone or type is another market")
		}

		time.Sleep(5*time.Minute + time.Second)
		f.refresh()
		assert.Equal(t, 10, f.room(otherA10InA), "there may be stock again")
	})
}

func TestNoMoreIsAskedForThanAGangThatCameShortHasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2"))
		f := newFixture(t, cloud)
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(8))
		cloud.end("asa-0", "OperationDenied.NoStock", cloud.launch(5, "asg-1", "asa-0", a10, "zone-a")...)
		cloud.endAs("asa-0", "Warning")
		f.refresh()
		assert.Equal(t, 5, f.room(otherA10InA), "the five are given back")
		time.Sleep(time.Second)
		require.NoError(t, f.group(otherA10InA).AtomicIncreaseSize(4))
		assert.Equal(t, 1, f.room(otherA10InA), "four of the five are asked for")
	})
}

func TestARefusalByRunInstancesTellsNothingAboutASmallerPurchase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup(), spotGroup("asg-2"))
		f := launchingFixture(t, cloud)
		cloud.launchErrs = []error{errNoStock}
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(8))
		f.refresh()
		assert.Equal(t, 4, f.room(otherA10InA))
	})
}

func TestWhatConcernsOnePoolKeepsNoOtherFromBuying(t *testing.T) {
	for _, code := range []string{"InvalidInstanceType.NotSupported", "QuotaExceed.ElasticQuota", "OperationDenied.SpotPriceLimit", ""} {
		cloud := newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2"))
		f := newFixture(t, cloud)
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		cloud.end("asa-0", code)
		cloud.endAs("asa-0", "Failed")
		f.refresh()
		require.NotEmpty(t, f.failedNodes(a10InA), code)
		assert.Equal(t, 10, f.room(otherA10InA), code)
	}
}

func TestAPoolWithoutTargetingSaysNothingAboutAnOffering(t *testing.T) {
	whole := spotGroup("asg-1")
	whole.Tags["gpu-spot.autoscaling/targeting"] = "whole"
	cloud := newFakeCloud(whole, spotGroup("asg-2"))
	f := newFixture(t, cloud)
	f.refresh()
	require.Equal(t, pool.TargetWhole, f.provider.store.Last().Pools["asg-1"].Targeting)
	for _, id := range f.groupIDs() {
		if f.group(id).poolID() == "asg-1" {
			require.NoError(t, f.group(id).IncreaseSize(3))
		}
	}
	cloud.end("asa-0", "OperationDenied.NoStock")
	f.refresh()
	assert.Empty(t, f.provider.store.Last().Shortages)
	assert.Equal(t, 10, f.room(otherA10InA))
}

func TestDuringAShortageAnOfferingCountsForMoreOnceItsStockIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()))
		f.refresh()
		ask := func(n int) { require.NoError(t, f.group(a10InA).AtomicIncreaseSize(n)) }
		ask(100)
		assert.Equal(t, 3.0, f.price(a10InA), "nothing is known of any stock")
		require.NoError(t, f.group(v100InA).IncreaseSize(50))
		cloud := f.cloud
		cloud.end("asa-1", "OperationDenied.NoStock", cloud.launch(40, "asg-1", "asa-1", v100, "zone-a")...)
		cloud.endAs("asa-1", "Warning")
		f.refresh()
		assert.Equal(t, 3*1.5*1.5, f.price(a10InA), "twice as many as the other had are asked for")
		cloud.end("asa-0", "", cloud.launch(100, "asg-1", "asa-0", a10, "zone-a")...)
		f.refresh()
		assert.Equal(t, 3.0, f.price(a10InA), "all of them are there")
		ask(39)
		assert.Equal(t, 3.0, f.price(a10InA))
		ask(1)
		assert.Equal(t, 4.5, f.price(a10InA))
		time.Sleep(5*time.Minute + time.Second)
		f.refresh()
		assert.Equal(t, 3.0, f.price(a10InA), "the shortage is over")
	})
}
