package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
)

var errNamed = &alicloud.Error{Code: "InvalidParameter", Class: alicloud.Invalid}

// refusesNamed refuses requests that name an instance type: that parameter is in the SDK and not in the documentation.
func refusesNamed(request alicloud.ScaleRequest) error {
	if request.InstanceType != "" {
		return errNamed
	}
	return nil
}

// deltas returns how many instances each purchase asked for that was sent.
func (f *fixture) deltas() (deltas []int) {
	f.cloud.mu.Lock()
	defer f.cloud.mu.Unlock()
	for _, request := range f.cloud.scaleCalls {
		deltas = append(deltas, request.Delta)
	}
	return deltas
}

// targetedBy returns whether the pool is targeted in this way, and for this reason.
func (f *fixture) targetedBy(mode pool.Targeting, reason basis) bool {
	return metric(f.T, "gpu_spot_pool_targeting", string(mode), "asg-1", string(reason)) == 1
}

func TestFirstPurchaseOfAPoolIsPlannedBeforeItIsSent(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	assert.Empty(t, f.cloud.planCalls, "nothing is asked that is not wanted")
	assert.True(t, f.targetedBy(pool.TargetRequest, byNothing))
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	require.Len(t, f.cloud.planCalls, 1)
	asked := f.cloud.planCalls[0]
	assert.Equal(t, []any{1, a10, []string{"vsw-a"}, alicloud.SpotAsPriceGo}, []any{asked.Delta, asked.InstanceType, asked.VSwitchIDs, asked.SpotStrategy},
		"a cloud that does not know plans would buy it")
	assert.Equal(t, []int{3}, f.deltas(), "bought in one")
	assert.NotEqual(t, asked.ClientToken, f.cloud.scaleCalls[0].ClientToken, "the cloud may remember the plan under its token")
	assert.Equal(t, 3, f.target(a10InA))
	require.NoError(t, f.group(a10InB).IncreaseSize(1))
	assert.Len(t, f.cloud.planCalls, 1, "once")
	f.refresh()
	assert.True(t, f.targetedBy(pool.TargetRequest, byPlan))
	said := f.events.With("SpotPoolTargeted")
	require.Len(t, said, 1)
	assert.Contains(t, said[0], a10)
}

func TestWhatIsBoughtDuringTheCheckLeavesItAsItIs(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	busy := true
	f.cloud.plans = func(alicloud.ScaleRequest) (alicloud.Plan, error) {
		if busy {
			return alicloud.Plan{}, errBusy
		}
		return planFor(a10, "zone-a"), nil
	}
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	busy = false
	for range 3 {
		f.refresh()
	}
	for _, asked := range f.cloud.planCalls {
		assert.Equal(t, 1, asked.Delta, "a cloud that does not know plans would buy it")
	}
	assert.ElementsMatch(t, []int{3, 2}, f.deltas(), "what was split off for the check is part of it again")
	assert.Equal(t, 5, f.target(a10InA))
}

func TestPoolThatPlansSomethingElseBecomesOneNodeGroupAndBuysNothing(t *testing.T) {
	for name, plan := range map[string]alicloud.Plan{
		"another type": planFor(v100, "zone-a"),
		"another zone": planFor(a10, "zone-b"),
		"partly": {Answered: true, Allocations: []alicloud.Allocation{
			{InstanceType: a10, ZoneID: "zone-a", Amount: 1}, {InstanceType: v100, ZoneID: "zone-a", Amount: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			woken := 0
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) { c.Wake = func() { woken++ } })
			f.cloud.plans = func(alicloud.ScaleRequest) (alicloud.Plan, error) { return plan, nil }
			f.refresh()
			require.NoError(t, f.group(a10InA).IncreaseSize(3))
			assert.Zero(t, f.target(a10InA))
			assert.Positive(t, woken, "the pods are looked at again")
			require.Error(t, f.group(a10InB).IncreaseSize(1), "in the same loop")
			f.refresh()
			assert.Equal(t, []string{wholeGroup}, f.groupIDs())
			assert.Zero(t, f.target(wholeGroup))
			assert.Empty(t, f.failedNodes(wholeGroup), "nothing that core would back the pool off for")
			assert.True(t, f.targetedBy(pool.TargetWhole, byPlan))
			assert.Len(t, f.events.With("SpotPoolNotTargetable"), 1)
			assert.Empty(t, f.purchases())
			assert.Empty(t, f.cloud.scaleCalls)
			require.NoError(t, f.group(wholeGroup).IncreaseSize(2))
			assert.Empty(t, f.cloud.scaleCalls[0].InstanceType)
		})
	}
}

func TestPlanOfNothingProvesNothing(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.plans = func(alicloud.ScaleRequest) (alicloud.Plan, error) { return alicloud.Plan{Answered: true}, nil }
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	require.NoError(t, f.group(a10InB).IncreaseSize(1))
	assert.Equal(t, []int{2, 1}, f.deltas())
	assert.Len(t, f.cloud.planCalls, 2, "the next purchase asks again")
}

// Where there are no plans, one instance that is wanted anyway is bought first.
func TestCloudThatBuysInsteadOfPlanning(t *testing.T) {
	buysPlans := func(t *testing.T) *fixture {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.buysPlans = true
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		require.NoError(t, f.group(a10InB).IncreaseSize(2))
		require.Equal(t, []int{1}, f.deltas(), "the others wait for what it tells")
		f.refresh()
		require.Equal(t, []int{1}, f.deltas())
		require.Equal(t, 3, f.target(a10InA))
		require.Equal(t, 2, f.target(a10InB))
		return f
	}
	t.Run("what was named comes, and the others follow", func(t *testing.T) {
		f := buysPlans(t)
		f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")
		f.refresh()
		f.refresh()
		assert.ElementsMatch(t, []int{1, 2, 2}, f.deltas())
		assert.Equal(t, 3, f.target(a10InA), "it counts as one of those wanted")
		assert.Len(t, f.cloud.planCalls, 1)
		assert.True(t, f.targetedBy(pool.TargetRequest, byDelivery))
	})
	t.Run("something else comes, and no more of it is bought", func(t *testing.T) {
		f := buysPlans(t)
		f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", v100, "zone-b")...)
		f.refresh()
		f.refresh()
		assert.Equal(t, []int{1}, f.deltas())
		assert.Equal(t, []string{wholeGroup}, f.groupIDs())
		assert.Equal(t, 1, f.target(wholeGroup))
		assert.Empty(t, f.failedNodes(wholeGroup))
		assert.True(t, f.targetedBy(pool.TargetWhole, byDelivery))
	})
	t.Run("nothing comes, and what comes of the others is compared", func(t *testing.T) {
		f := buysPlans(t)
		f.cloud.end("asa-0", "OperationDenied.NoStock")
		f.refresh()
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 1)
		assert.ElementsMatch(t, []int{1, 2, 2}, f.deltas())
		assert.Len(t, f.events.With("SpotPoolTargeted"), 1)
	})
	t.Run("it takes too long, and the others do not wait for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := buysPlans(t)
			time.Sleep(ledger.CheckTimeout - time.Second)
			f.refresh()
			require.Equal(t, []int{1}, f.deltas())
			assert.Empty(t, f.events.With("SpotPurchaseGivenUp"), "the time is not that of the queue")
			time.Sleep(2 * time.Second)
			f.refresh()
			f.refresh()
			assert.ElementsMatch(t, []int{1, 2, 2}, f.deltas())
			assert.Empty(t, f.events.With("SpotPurchaseGivenUp"))
		})
	})
	t.Run("core wants it no more, and the next finds out", func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.buysPlans, f.cloud.scaleErrs = true, []error{errBusy}
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		require.NoError(t, f.group(a10InB).IncreaseSize(2))
		require.NoError(t, f.group(a10InA).DecreaseTargetSize(-1))
		f.refresh()
		f.refresh()
		assert.Equal(t, []int{1, 1}, f.deltas(), "the first was refused")
		assert.Equal(t, "vsw-b", f.cloud.scaleCalls[1].VSwitchIDs[0])
		assert.Equal(t, 2, f.target(a10InB))
	})
	t.Run("a gang is not parted", func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.buysPlans = true
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		assert.Equal(t, []int{4}, f.deltas())
		f.refresh()
		assert.Equal(t, []int{4}, f.deltas())
		assert.Equal(t, 4, f.target(a10InA))
	})
	t.Run("a new process counts the one that was bought", func(t *testing.T) {
		f := buysPlans(t)
		next := newFixture(t, f.cloud)
		next.refresh()
		assert.Equal(t, 1, next.target(a10InA))
		assert.Equal(t, []int{1}, f.deltas())
	})
}

func TestPlanWithoutAnAnswerThatWasBoughtCountsOnce(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.buysPlans, f.cloud.lost, f.cloud.scaleErrs = true, true, []error{errLost}
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	f.refresh()
	f.refresh()
	assert.Len(t, f.cloud.activities, 1)
	assert.Equal(t, 3, f.target(a10InA))
	f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")
	f.refresh()
	f.refresh()
	assert.Len(t, f.cloud.activities, 2)
	assert.Equal(t, 3, f.target(a10InA))
}

func TestPoolThatRefusesToBeTargetedBecomesOneNodeGroup(t *testing.T) {
	for name, buysPlans := range map[string]bool{"its plans": false, "its purchases": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.cloud.refuses, f.cloud.buysPlans = refusesNamed, buysPlans
			f.refresh()
			require.NoError(t, f.group(a10InA).IncreaseSize(2))
			f.refresh()
			assert.Equal(t, []string{wholeGroup}, f.groupIDs())
			assert.Empty(t, f.failedNodes(wholeGroup))
			assert.Zero(t, f.target(wholeGroup))
			assert.True(t, f.targetedBy(pool.TargetWhole, byRefusal))
			require.NoError(t, f.group(wholeGroup).IncreaseSize(2))
			assert.Len(t, f.cloud.activities, 1)
		})
	}
}

func TestPoolThatRefusesEverythingIsTargetedAsBefore(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.refuses = func(alicloud.ScaleRequest) error { return errNamed }
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	f.refresh()
	require.NoError(t, f.group(wholeGroup).IncreaseSize(2))
	f.refresh()
	require.Contains(t, f.groupIDs(), a10InA)
	for range 3 {
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		assert.Len(t, f.failedNodes(a10InA), 1, "an ordinary failure, for which core backs the offering off")
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		f.refresh()
	}
	assert.Len(t, f.events.With("SpotPoolNotTargetable"), 1, "not back and forth")
}

func TestRefusalOfAPoolThatTookTheLikeBeforeIsAnOrdinaryFailure(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	f.cloud.refuses = refusesNamed
	require.NoError(t, f.group(a10InB).IncreaseSize(1))
	f.refresh()
	assert.Contains(t, f.groupIDs(), a10InB)
	assert.Len(t, f.failedNodes(a10InB), 1)
}

func TestCloudThatRefusesPlansIsAskedForOneInstanceInstead(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.plans = func(alicloud.ScaleRequest) (alicloud.Plan, error) {
		return alicloud.Plan{}, &alicloud.Error{Code: "InvalidParameter", Message: "The parameter ExecutionMode is not valid.", Class: alicloud.Invalid}
	}
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	assert.Equal(t, []int{1}, f.deltas())
	assert.NotEqual(t, f.cloud.planCalls[0].ClientToken, f.cloud.scaleCalls[0].ClientToken)
	f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")
	f.refresh()
	f.refresh()
	assert.Equal(t, []int{1, 2}, f.deltas())
	assert.Len(t, f.cloud.planCalls, 1)
}

func TestTheCheckStaysTheCheckWithoutParallelTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.buysPlans = true
		f.cloud.refuses = func(request alicloud.ScaleRequest) error {
			if !request.Serial {
				return errNoParallel
			}
			return nil
		}
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(5))
		for range 3 {
			time.Sleep(time.Second)
			f.refresh()
		}
		assert.Equal(t, []int{1}, f.cloud.accepted(), "the others wait for what it tells")
		f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
		f.refresh()
		f.refresh()
		assert.Equal(t, []int{1, 4}, f.cloud.accepted())
	})
}

func TestNewConfigurationIsFoundOutAnew(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.plans = func(alicloud.ScaleRequest) (alicloud.Plan, error) { return planFor(v100, "zone-b"), nil }
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	f.refresh()
	require.Equal(t, []string{wholeGroup}, f.groupIDs())

	two := f.cloud.configurations["two-types"]
	two.ID = "two-types-again"
	f.cloud.configurations[two.ID] = two
	group := f.cloud.groups["asg-1"]
	group.ActiveScalingConfigurationID = two.ID
	f.cloud.groups["asg-1"] = group
	f.cloud.plans = nil
	f.refresh()
	assert.Contains(t, f.groupIDs(), a10InA)
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	assert.Len(t, f.cloud.planCalls, 2)
	f.refresh()
	assert.True(t, f.targetedBy(pool.TargetRequest, byPlan))

	next := newFixture(t, f.cloud)
	f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
	next.refresh()
	assert.Contains(t, next.groupIDs(), a10InA)
}

func TestWhatAFormerConfigurationDeliveredIsNoEvidence(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", v100, "zone-b")...)
	f.refresh()
	require.Equal(t, []string{wholeGroup}, f.groupIDs())
	two := f.cloud.configurations["two-types"]
	two.ID = "two-types-again"
	f.cloud.configurations[two.ID] = two
	group := f.cloud.groups["asg-1"]
	group.ActiveScalingConfigurationID = two.ID
	f.cloud.groups["asg-1"] = group
	for _, process := range []*fixture{f, newFixture(t, f.cloud)} {
		process.refresh()
		process.refresh()
		assert.Contains(t, process.groupIDs(), a10InA)
	}
}

func TestNothingIsFoundOutWhereTheOperatorOrTheOfferingDecides(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*alicloud.ScalingGroup)
		mode   pool.Targeting
		reason basis
	}{
		"the tag says request": {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/targeting"] = "request" }, pool.TargetRequest, byTag},
		"the tag says whole":   {func(g *alicloud.ScalingGroup) { g.Tags["gpu-spot.autoscaling/targeting"] = "whole" }, pool.TargetWhole, byTag},
		"there is one offering": {func(g *alicloud.ScalingGroup) {
			g.ActiveScalingConfigurationID, g.VSwitchIDs = "one-type", []string{"vsw-a"}
		}, pool.TargetSingle, byOffering},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			test.change(&group)
			f := newFixture(t, newFakeCloud(group))
			f.refresh()
			require.NoError(t, f.provider.NodeGroups()[0].IncreaseSize(3))
			assert.Empty(t, f.cloud.planCalls)
			assert.Equal(t, []int{3}, f.deltas())
			f.refresh()
			assert.True(t, f.targetedBy(test.mode, test.reason))
		})
	}
}

func TestInstanceThatIsListedWithoutTypeAndZoneProvesNothing(t *testing.T) {
	for name, of := range map[string]func(*fixture) *fixture{
		"of this process":   func(f *fixture) *fixture { return f },
		"of the one before": func(f *fixture) *fixture { return newFixture(f.T, f.cloud) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.refresh()
			require.NoError(t, f.group(a10InA).IncreaseSize(1))
			id := f.cloud.launch(1, "asg-1", "asa-0", "", "")[0]
			begun := f.cloud.instances[id]
			begun.SpotStrategy, begun.LifecycleState = "", alicloud.LifecyclePending
			f.cloud.instances[id] = begun
			activity := f.cloud.activities["asa-0"]
			activity.CreatedInstances = []string{id}
			f.cloud.activities["asa-0"] = activity

			f = of(f)
			for range 2 {
				f.refresh()
				assert.Equal(t, 1, f.target(a10InA), "it counts for what was asked for")
				assert.Empty(t, f.events.With("SpotPoolNotTargetable"))
				assert.Empty(t, f.events.With("SpotCompensatedWithOnDemand"))
				assert.Len(t, f.groupIDs(), 4)
				group, err := f.provider.NodeGroupForNode(nodeOf(id))
				require.NoError(t, err)
				assert.Equal(t, a10InA, group.Id())
			}
			begun.InstanceType, begun.ZoneID, begun.SpotStrategy = v100, "zone-b", alicloud.NoSpot
			f.cloud.instances[id] = begun
			f.refresh()
			assert.Len(t, f.events.With("SpotPoolNotTargetable"), 1, "what it tells later does")
			assert.Len(t, f.events.With("SpotCompensatedWithOnDemand"), 1)
		})
	}
}

func TestInstanceOfWhichNothingIsKnownIsOfNoNodeGroup(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.launch(1, "asg-1", "asa-of-somebody", "", "")
	f.refresh()
	assert.Len(t, f.groupIDs(), 4)
	assert.Equal(t, 9, f.group(a10InA).MaxSize(), "it holds room in the pool all the same")
}
