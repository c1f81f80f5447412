package ess

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestPoolThatIgnoresTargetingBecomesOneNodeGroup(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", v100, "zone-b")...)
	f.refresh()
	assert.Equal(t, []string{"asg-1/any/any/spot"}, f.groupIDs())
	assert.Equal(t, 1, f.target("asg-1/any/any/spot"))
	assert.Len(t, f.events.With("SpotPoolNotTargetable"), 1)
	group, err := f.provider.NodeGroupForNode(nodeOf("i-0001"))
	require.NoError(t, err)
	assert.Equal(t, "asg-1/any/any/spot", group.Id())

	require.NoError(t, group.IncreaseSize(1))
	assert.Empty(t, f.cloud.scaleCalls[1].InstanceType, "a whole pool is not targeted")

	template, err := group.TemplateNodeInfo()
	require.NoError(t, err)
	model, _ := f.provider.Pricing()
	price, err := model.NodePrice(template.Node(), time.Time{}, time.Time{}.Add(time.Hour))
	require.NoError(t, err)
	assert.InDelta(t, 5, price, 0.001, "priced as the dearest")

	again := newFixture(t, f.cloud)
	again.refresh()
	again.refresh()
	assert.Equal(t, []string{"asg-1/any/any/spot"}, again.groupIDs(), "the next process finds it in the activities")
}

func TestPayAsYouGoThatCameForSpotIsTold(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	ids := f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")
	instance := f.cloud.instances[ids[0]]
	instance.SpotStrategy = alicloud.NoSpot
	f.cloud.instances[ids[0]] = instance
	f.cloud.end("asa-0", "", ids...)
	f.refresh()
	f.refresh()
	assert.Len(t, f.events.With("SpotCompensatedWithOnDemand"), 1)
	onDemand := "asg-1/" + a10 + "/zone-a/on-demand"
	assert.Equal(t, 1, f.target(onDemand), "the node follows the instance")
	assert.Equal(t, 1, f.group(onDemand).MaxSize(), "and no more of it is bought")
}
