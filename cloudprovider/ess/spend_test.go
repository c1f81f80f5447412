package ess

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// cappedGroup is a pool that may cost so much in an hour. In zone-a an A10 costs 3 and a V100 5; in zone-b prices are unknown.
func cappedGroup(perHour string) alicloud.ScalingGroup {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/spend-cap"] = perHour
	return group
}

func TestASpendCapLeavesRoomForAsManyAsItPays(t *testing.T) {
	cloud := newFakeCloud(cappedGroup("16"))
	ids := cloud.launch(2, "asg-1", "", a10, "zone-a")
	f := newFixture(t, cloud)
	f.loop()
	assert.Equal(t, 2+3, f.group(a10InA).MaxSize(), "10 are left, and one costs 3")
	assert.Equal(t, 2, f.group(v100InA).MaxSize(), "or two that cost 5")
	assert.Zero(t, f.group(a10InB).MaxSize(), "whose price is unknown")
	assert.Equal(t, reasons.NoPrice, f.group(a10InB).Obstacle().Code)
	assert.Equal(t, 1, f.provider.RoomBeside(a10InA, map[string]int{v100InA: 1}), "what is planned counts")

	require.NoError(t, f.group(v100InA).IncreaseSize(1))
	assert.Equal(t, 2+1, f.group(a10InA).MaxSize(), "so does what is bought and not delivered")
	assert.Error(t, f.group(a10InA).IncreaseSize(2))

	f.reclaiming = sets.New(ids...)
	f.loop()
	assert.Equal(t, 3, f.group(a10InA).MaxSize(), "what is reclaimed is replaced first")
}

func TestAPoolWithoutASpendCapMayCostWhatItNeeds(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.loop()
	assert.Equal(t, 10, f.group(a10InB).MaxSize())
}

func TestAReachedSpendCapIsToldOnceUntilThereIsMoneyAgain(t *testing.T) {
	spendCapReached.Reset()
	cloud := newFakeCloud(cappedGroup("7"))
	ids := cloud.launch(2, "asg-1", "", a10, "zone-a")
	f := newFixture(t, cloud)
	f.loop()
	f.loop()
	assert.Equal(t, []string{"SpotPoolSpendCapReached: Pool asg-1 costs 6.00 CNY an hour, and may cost 7 (gpu-spot.autoscaling/spend-cap): nothing more is " +
		"bought in it until instances are given back or prices fall"}, f.events.With("SpotPoolSpendCapReached"))
	assert.InDelta(t, 1, testutil.ToFloat64(spendCapReached), 0, "for the alert")
	obstacle := f.group(a10InA).Obstacle()
	require.NotNil(t, obstacle)
	assert.Equal(t, reasons.SpendCap, obstacle.Code)
	assert.Equal(t, "spend cap 7 < 6.00 of pool asg-1 and 3.00 CNY per hour for one more", obstacle.Message)
	assert.Equal(t, "Raise the tag gpu-spot.autoscaling/spend-cap of pool asg-1 to at least 9 CNY per hour, or wait until instances are given back.", obstacle.Mend)

	cloud.release(ids[0])
	f.loop()
	assert.Nil(t, f.group(a10InA).Obstacle())
	assert.Zero(t, testutil.CollectAndCount(spendCapReached))
	cloud.launch(1, "asg-1", "", a10, "zone-a")
	f.loop()
	assert.Len(t, f.events.With("SpotPoolSpendCapReached"), 2)

	delete(cloud.groups["asg-1"].Tags, "gpu-spot.autoscaling/spend-cap")
	f.loop()
	assert.Zero(t, testutil.CollectAndCount(spendCapReached), "a pool without a cap has none to reach")
}

func TestEachInstanceOfAWholePoolCountsAtTheDearestPrice(t *testing.T) {
	group := cappedGroup("16")
	group.VSwitchIDs = []string{"vsw-a"}
	group.Tags["gpu-spot.autoscaling/targeting"] = "whole"
	cloud := newFakeCloud(group)
	cloud.launch(1, "asg-1", "", a10, "zone-a")
	f := newFixture(t, cloud)
	f.loop()
	assert.Equal(t, 3, f.group("asg-1/any/any/spot").MaxSize(), "one for 5, and two more for 5 each")
}
