package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
)

// price returns the hourly price with which the node group is compared with others.
func (f *fixture) price(groupID string) float64 {
	f.Helper()
	price, known := f.provider.NodePrice(groupID, nil)
	require.True(f, known)
	return price
}

// choice returns the node group that the expander least-price chooses for one GPU, and the market price that it reports.
func (f *fixture) choice(groupIDs ...string) (groupID string, price float64) {
	var options []expander.Option
	templates := map[string]*framework.NodeInfo{}
	for _, id := range groupIDs {
		template, err := f.group(id).TemplateNodeInfo()
		require.NoError(f, err)
		templates[id] = template
		options = append(options, expander.Option{NodeGroup: f.group(id), NodeCount: 1, Pods: []*apiv1.Pod{{}}})
	}
	model, err := f.provider.Pricing()
	require.NoError(f, err)
	choose := pricing.NewLeastPrice(model, f.provider.config.Clock, func(decision pricing.Decision) { price = decision.Chosen.Price })
	return choose.BestOption(options, templates).NodeGroup.Id(), price
}

func TestReclaimingOfferingLosesToOneThatCostsLittleMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) {
			c.Prices = fixedPrices{{InstanceType: a10, Zone: "zone-a", Spot: true}: 3, {InstanceType: a10, Zone: "zone-b", Spot: true}: 4,
				{InstanceType: v100, Zone: "zone-a", Spot: true}: 5}
		})
		ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
		f.refresh()
		const a10InB = "asg-1/" + a10 + "/zone-b/spot"
		best, told := f.choice(a10InA, a10InB)
		require.Equal(t, a10InA, best)
		assert.Equal(t, 3., told)

		f.reclaiming.Insert(ids[0])
		f.provider.BeginLoop(nodesOf(ids...))
		assert.Equal(t, 4.5, f.price(a10InA), "known before the loop buys, and before it refreshes")
		best, told = f.choice(a10InA, a10InB)
		assert.Equal(t, a10InB, best)
		assert.Equal(t, 4., told)
		_, told = f.choice(a10InA)
		assert.Equal(t, 3., told, "what is told is the market's price")
		assert.Equal(t, 5., f.price("asg-1/"+v100+"/zone-a/spot"), "another type in the zone is another market")

		time.Sleep(9 * time.Minute)
		f.provider.BeginLoop(nodesOf(ids...))
		assert.Equal(t, 4.5, f.price(a10InA))
		time.Sleep(time.Minute)
		f.provider.BeginLoop(nodesOf(ids...))
		assert.Equal(t, 3., f.price(a10InA), "an old notice counts once, however long the instance takes to go")
		f.reclaiming.Insert(ids[1])
		f.provider.BeginLoop(nodesOf(ids...))
		assert.Equal(t, 4.5, f.price(a10InA), "a further notice counts anew")
	})
}

func TestOnlyWhatTheMarketTakesAwayMakesAnOfferingDearer(t *testing.T) {
	lost := sets.New[string]()
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) { c.Lost = func() sets.Set[string] { return lost.Clone() } })
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	f.reclaiming.Insert(ids...)
	f.provider.BeginLoop(nodesOf(ids...))
	assert.Equal(t, 3., f.price(a10InA), "both are faulty, or nothing has confirmed that they go")
	lost.Insert(ids[0])
	f.provider.BeginLoop(nodesOf(ids...))
	assert.Equal(t, 4.5, f.price(a10InA))
	instances, _ := f.provider.Instances()
	for _, instance := range instances {
		assert.Equal(t, instance.ID == ids[0], instance.Lost)
		assert.True(t, instance.Reclaiming)
	}
}

func TestNewProcessLearnsThePenaltyFromMarkedNodes(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
	marked := nodeOf(ids[0])
	marked.Labels = map[string]string{api.LabelReclaiming: "true"}
	f.provider.BeginLoop([]*apiv1.Node{marked}) // before the pools are known
	f.refresh()
	assert.Equal(t, 3., f.price(a10InA))
	f.provider.BeginLoop([]*apiv1.Node{marked})
	assert.Equal(t, 4.5, f.price(a10InA))
}

func TestPenaltyIsOfTheMarketAndNotOfThePool(t *testing.T) {
	for name, test := range map[string]struct {
		strategy string
		whole    bool
		group    string
		want     float64
	}{
		"another pool offers the same":                      {alicloud.SpotAsPriceGo, false, "asg-2/" + a10 + "/zone-a/spot", 4.5},
		"pay-as-you-go is not reclaimed by the spot market": {alicloud.NoSpot, false, "asg-2/" + a10 + "/zone-a/spot", 3},
		"a whole pool costs what its dearest offering does": {alicloud.SpotAsPriceGo, true, "asg-2/any/any/spot", 4.5},
	} {
		t.Run(name, func(t *testing.T) {
			other := spotGroup("asg-2")
			other.ActiveScalingConfigurationID, other.VSwitchIDs = "one-type", []string{"vsw-a"}
			if test.whole {
				other.Tags["gpu-spot.autoscaling/targeting"] = "whole"
			}
			f := newFixture(t, newFakeCloud(spotGroup("asg-1"), other))
			id := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
			instance := f.cloud.instances[id]
			instance.SpotStrategy = test.strategy
			f.cloud.instances[id] = instance
			f.refresh()
			f.reclaiming.Insert(id)
			f.provider.BeginLoop(nil)
			assert.Equal(t, test.want, f.price(test.group))
		})
	}
}

func TestReserveForReplacements(t *testing.T) {
	for name, test := range map[string]struct {
		ownMax string
		room   int
		told   int
	}{
		"the pool's maximum leaves some": {"8", 2, 0},
		"without one there is none":      {"", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			if test.ownMax != "" {
				group.Tags["gpu-spot.autoscaling/max-size"] = test.ownMax
			}
			f := newFixture(t, newFakeCloud(group))
			ids := f.cloud.launch(8, "asg-1", "", a10, "zone-a")
			if test.ownMax == "" {
				ids = append(ids, f.cloud.launch(2, "asg-1", "", a10, "zone-a")...)
			}
			f.refresh()
			require.Zero(t, f.provider.store.Last().Room(a10InA, f.provider.config.Prices), "the pool is full")
			f.reclaiming.Insert(ids[0], ids[1])
			f.provider.BeginLoop(nodesOf(ids...))
			f.refresh()
			assert.Equal(t, test.room, f.group(a10InA).MaxSize()-f.target(a10InA))
			assert.Len(t, f.events.With("SpotPoolWithoutReserve"), test.told, "once, however many loops")
		})
	}
}
