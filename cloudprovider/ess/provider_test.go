package ess

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	a10InA = "asg-1/" + a10 + "/zone-a/spot"
	a10InB = "asg-1/" + a10 + "/zone-b/spot"
)

var (
	errNoStock   = &alicloud.Error{Code: "OperationDenied.NoStock", Class: alicloud.Stockout}
	errBusy      = &alicloud.Error{Code: "ScalingActivityInProgress", Class: alicloud.Conflict}
	errLost      = &alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true}
	errThrottled = &alicloud.Error{Code: "Throttling", Class: alicloud.Throttled}
	errRefused   = &alicloud.Error{Code: "InvalidSpotAuthorized", Class: alicloud.Unauthorized}
	errNoAnswer  = errors.New("no answer")
	// errUncertainRefusal is what the client returns for an attempt without an answer and a refused one after it.
	errUncertainRefusal = &alicloud.Error{Code: "InvalidSpotAuthorized", Class: alicloud.Unauthorized, Uncertain: true}
)

func TestEveryTypeInEveryZoneIsANodeGroup(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	assert.Equal(t, []string{
		"asg-1/" + v100 + "/zone-a/spot", "asg-1/" + v100 + "/zone-b/spot", a10InA, a10InB,
	}, f.groupIDs())
	first := f.group(a10InA)
	f.refresh()
	assert.Same(t, first, f.group(a10InA), "core keeps the pointer across loops")
	assert.Empty(t, f.events.With("SpotPoolProblem"))
}

func TestReclaimingInstancesAreNoCapacity(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(3, "asg-1", "", a10, "zone-a")
	f.refresh()
	f.reclaiming.Insert(ids[0])
	assert.Equal(t, 3, f.target(a10InA), "frozen until the next loop")
	marked := nodeOf(ids[1])
	marked.Labels = map[string]string{api.LabelReclaiming: "true"}
	f.provider.BeginLoop([]*apiv1.Node{nodeOf(ids[0]), marked, nodeOf(ids[2])})
	f.refresh()
	assert.Equal(t, 1, f.target(a10InA))
	assert.Equal(t, 1+7, f.group(a10InA).MaxSize(), "the scaling group's maximum of 10 counts those that are reclaimed too")
	assert.True(t, f.provider.IsReclaiming(marked))
	instances, _ := f.group(a10InA).Nodes()
	states := map[cloudprovider.InstanceState]int{}
	for _, instance := range instances {
		states[instance.Status.State]++
	}
	assert.Equal(t, map[cloudprovider.InstanceState]int{cloudprovider.InstanceDeleting: 2, cloudprovider.InstanceRunning: 1}, states)
}

func TestInstanceCarriesTheProviderIDOfItsNode(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	node := nodeOf(ids[0])
	node.Spec.ProviderID = "alicloud://cn-test." + ids[0]
	f.provider.BeginLoop([]*apiv1.Node{node})
	f.refresh()
	instances, _ := f.group(a10InA).Nodes()
	assert.Equal(t, []string{"alicloud://cn-test." + ids[0], "cn-test." + ids[1]}, []string{instances[0].Id, instances[1].Id})
}

func TestItIsToldWhenThePoolsHaveBeenRead(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	isRead := func() bool {
		select {
		case <-f.provider.FirstRead():
			return true
		default:
			return false
		}
	}
	id := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
	f.cloud.listErr = errLost
	require.Error(t, f.provider.Refresh())
	assert.False(t, isRead())
	assert.False(t, f.provider.Lists(id))
	require.ErrorIs(t, f.provider.GiveBack(nodeOf(id)), ErrNoPool)
	f.cloud.listErr = nil
	f.refresh()
	assert.True(t, isRead())
	assert.True(t, f.provider.Lists(id))
	f.refresh()
	assert.True(t, isRead())
}

func TestHasInstance(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.provider.BeginLoop(nodesOf(ids...))
	f.refresh()
	delete(f.cloud.instances, ids[1])
	f.refresh()
	for name, test := range map[string]struct {
		node *apiv1.Node
		want bool
	}{
		"there":                 {nodeOf(ids[0]), true},
		"gone":                  {nodeOf(ids[1]), false},
		"never ours":            {nodeOf("i-foreign"), true},
		"of another cloud":      {&apiv1.Node{Spec: apiv1.NodeSpec{ProviderID: "aws:///us-east-1a/i-0abc"}}, true},
		"without a providerID":  {&apiv1.Node{}, true},
		"providerID of nothing": {&apiv1.Node{Spec: apiv1.NodeSpec{ProviderID: "cn-test."}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			has, err := f.provider.HasInstance(test.node)
			require.NoError(t, err)
			assert.Equal(t, test.want, has)
		})
	}
}

func TestNodesOfNobodyAreToldOnce(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	foreign := nodeOf("i-1")
	foreign.Spec.ProviderID = "aws:///us-east-1a/i-0abc"
	bare := nodeOf("i-2")
	bare.Spec.ProviderID = ""
	for range 2 {
		f.provider.BeginLoop([]*apiv1.Node{foreign, bare, nodeOf("i-3")})
	}
	said := f.events.With("SpotNodeUnrecognized")
	require.Len(t, said, 2)
	assert.Contains(t, said[0], "aws:///us-east-1a/i-0abc")
	group, err := f.provider.NodeGroupForNode(foreign)
	require.NoError(t, err)
	assert.Nil(t, group)
}

func TestNodesOfNobodyAreToldOnceHoweverManyThereAre(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	foreign := make([]*apiv1.Node, 10_000)
	for i := range foreign {
		foreign[i] = nodeOf(fmt.Sprint("i-", i))
		foreign[i].Spec.ProviderID = fmt.Sprint("aws:///us-east-1a/i-", i)
	}
	f.provider.BeginLoop(foreign)
	f.provider.BeginLoop(foreign)
	require.Len(t, f.events.With("SpotNodeUnrecognized"), len(foreign))

	f.provider.BeginLoop(foreign[1:])
	f.provider.BeginLoop(foreign)
	assert.Len(t, f.events.With("SpotNodeUnrecognized"), len(foreign)+1, "that of the Node that came back")
}

func TestInstanceMissingFromAShiftingPageIsNotTakenForGone(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	f.cloud.hidden = ids[:1]
	f.refresh()
	assert.Equal(t, ids[:1], f.cloud.lookedFor)
	assert.Equal(t, 2, f.target(a10InA))
}

func TestInstanceRemovedWhileInstancesAreListedIsNotLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
		f.loop(nodesOf(ids...)...)
		offered := f.group(a10InA)
		f.cloud.beforeListing = func() { require.NoError(t, offered.DeleteNodes(nodesOf(ids[0]))) }
		f.refresh()
		assert.Empty(t, f.cloud.lookedFor)
		assert.True(t, f.provider.Lists(ids[1]))
		assert.False(t, f.provider.Lists(ids[0]))
	})
}

func TestBrokenPoolStopsAloneAndSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*alicloud.ScalingGroup)
		says  string
	}{
		"a tag that does not parse":  {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/cooldown"] = "soon" }, "gpu-spot.autoscaling/cooldown"},
		"no scaling configuration":   {func(g *alicloud.ScalingGroup) { g.ActiveScalingConfigurationID = "" }, "scaling configuration"},
		"no vSwitch that exists":     {func(g *alicloud.ScalingGroup) { g.VSwitchIDs = []string{"vsw-gone"} }, "vsw-gone"},
		"minimum above its maximum":  {func(g *alicloud.ScalingGroup) { g.MinSize = 11 }, "maximum of 10"},
		"one type that is unknown":   {func(g *alicloud.ScalingGroup) { g.ActiveScalingConfigurationID = "half-known" }, "ecs.none"},
		"one vSwitch that is gone":   {func(g *alicloud.ScalingGroup) { g.VSwitchIDs = []string{"vsw-a", "vsw-gone"} }, "vsw-gone"},
		"only unknown types to sell": {func(g *alicloud.ScalingGroup) { g.ActiveScalingConfigurationID = "unknown-type" }, "ecs.none"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := spotGroup("asg-2")
			test.spoil(&broken)
			f := newFixture(t, newFakeCloud(spotGroup("asg-1"), broken))
			f.cloud.configurations["unknown-type"] = alicloud.ScalingConfiguration{ID: "unknown-type", InstanceTypes: []string{"ecs.none"}}
			f.cloud.configurations["half-known"] = alicloud.ScalingConfiguration{ID: "half-known", InstanceTypes: []string{a10, "ecs.none"}}
			f.refresh()
			f.refresh()
			assert.Subset(t, f.groupIDs(), []string{a10InA, a10InB}, "the other pool goes on")
			said := f.events.With("SpotPoolProblem")
			require.Len(t, said, 1, "said once")
			assert.Contains(t, said[0], "asg-2")
			assert.Contains(t, said[0], test.says)
		})
	}
}

func TestPoolThatIsDeletedLeavesQuietly(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")))
	ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
	f.provider.BeginLoop(nodesOf(ids...))
	f.refresh()
	handle := f.group(a10InA)
	require.NoError(t, handle.IncreaseSize(1))
	delete(f.cloud.groups, "asg-1")
	delete(f.cloud.instances, ids[0])
	f.refresh()
	assert.Len(t, f.groupIDs(), 4)
	size, err := handle.TargetSize()
	require.NoError(t, err)
	assert.Zero(t, size)
	assert.False(t, handle.Exist())
	require.Error(t, handle.IncreaseSize(1))
	has, _ := f.provider.HasInstance(nodeOf(ids[0]))
	assert.False(t, has)
}

func TestLastSnapshotIsServedWhileTheCloudIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.listErr = errLost
		require.Error(t, f.provider.Refresh(), "nothing is known yet")
		f.cloud.listErr = nil
		f.refresh()
		f.cloud.listErr = errLost
		for range 10 {
			f.refresh()
			time.Sleep(10 * time.Second)
		}
		assert.Len(t, f.groupIDs(), 4)
		assert.Len(t, f.events.With("SpotRefreshFailed"), 1, "once it stands")
		f.cloud.listErr = nil
		f.refresh()
		assert.Len(t, f.events.With("SpotProblemOver"), 1)
	})
}

func TestWhatCannotBeBoughtHasNoRoom(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*alicloud.ScalingGroup)
		room   int
	}{
		"nothing stands against it":      {func(*alicloud.ScalingGroup) {}, 10},
		"suspended by Alibaba":           {func(g *alicloud.ScalingGroup) { g.SystemSuspended = true }, 0},
		"scale-out suspended":            {func(g *alicloud.ScalingGroup) { g.SuspendedProcess = []string{"ScaleOut"} }, 0},
		"inactive":                       {func(g *alicloud.ScalingGroup) { g.LifecycleState = "Inactive" }, 0},
		"price above its cap":            {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/price-cap"] = "2" }, 0},
		"price below its cap":            {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/price-cap"] = "4" }, 10},
		"own maximum below the group's":  {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/max-size"] = "6" }, 6},
		"price cap of another type only": {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/price-cap/"+v100] = "1" }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			test.change(&group)
			f := newFixture(t, newFakeCloud(group))
			f.refresh()
			assert.Equal(t, test.room, f.group(a10InA).MaxSize())
		})
	}
}

func TestRegionWithoutAPoolIsTold(t *testing.T) {
	f := newFixture(t, newFakeCloud(), func(c *Config) { c.ClusterName = "mistyped" })
	f.refresh()
	f.refresh()
	said := f.events.With("SpotPoolProblem")
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "mistyped")
}

func TestExplicitPools(t *testing.T) {
	untagged := spotGroup("asg-1")
	untagged.Tags = nil
	f := newFixture(t, newFakeCloud(untagged), func(c *Config) {
		c.NodeGroupSpecs = []string{"0:4:asg-1", "0:1:asg-gone"}
	})
	f.refresh()
	assert.Len(t, f.groupIDs(), 4)
	assert.Equal(t, 4, f.group(a10InA).MaxSize())
	assert.Contains(t, f.events.With("SpotPoolProblem")[0], "asg-gone")

	_, err := New(Config{NodeGroupSpecs: []string{"one:2:asg-1"}})
	require.ErrorContains(t, err, "one:2:asg-1")
}

func TestPoolStatusForScaleDown(t *testing.T) {
	group := spotGroup("asg-1")
	group.MinSize, group.Tags["gpu-spot.autoscaling/cooldown"] = 1, "5m"
	f := newFixture(t, newFakeCloud(group))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	status, ours := f.provider.PoolOf(nodeOf(ids[0]))
	require.True(t, ours)
	assert.Equal(t, PoolStatus{ID: "asg-1", Size: 2, MinSize: 1, Cooldown: ptr.To(5 * time.Minute),
		LastScaleUp: f.cloud.instances[ids[1]].Created}, status)
	_, ours = f.provider.PoolOf(nodeOf("i-foreign"))
	assert.False(t, ours)
}

func TestNodeGroupsOfARemovedPoolAreForgottenAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")))
		f.refresh()
		delete(f.cloud.groups, "asg-1")
		time.Sleep(23 * time.Hour)
		f.refresh()
		assert.Contains(t, f.provider.store.Last().Groups, a10InA, "core may hold one")
		time.Sleep(2 * time.Hour)
		f.refresh()
		assert.NotContains(t, f.provider.store.Last().Groups, a10InA)
		assert.NotContains(t, f.provider.groups.byID, a10InA)
		assert.Contains(t, f.provider.groups.byID, otherA10InA)
	})
}

func TestSpotPoolsAreThoseThatBuySpotInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onDemand := spotGroup("asg-2")
		onDemand.ActiveScalingConfigurationID = "on-demand"
		cloud := newFakeCloud(spotGroup("asg-3"), onDemand, spotGroup("asg-1"))
		cloud.configurations["on-demand"] = alicloud.ScalingConfiguration{ID: "on-demand", InstanceTypes: []string{a10}, SpotStrategy: alicloud.NoSpot}
		f := newFixture(t, cloud)
		f.refresh()
		assert.Equal(t, []string{"asg-1", "asg-3"}, f.provider.SpotPools())
	})
}
