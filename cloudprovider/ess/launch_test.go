package ess

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

// launchGroup is a scaling group whose pool buys by RunInstances.
func launchGroup() alicloud.ScalingGroup {
	group := spotGroup("asg-1")
	group.MaxSize = 400
	group.Tags[api.TagPurchase] = "run-instances"
	return group
}

// groupWithTwoVSwitches returns a launchGroup with two vSwitches in zone-a.
func groupWithTwoVSwitches(t *testing.T) alicloud.ScalingGroup {
	group := launchGroup()
	group.VSwitchIDs = []string{"vsw-a", "vsw-a2"}
	zoneOfVSwitch["vsw-a2"] = "zone-a"
	t.Cleanup(func() { delete(zoneOfVSwitch, "vsw-a2") })
	return group
}

// launchingFixture returns a provider of such a pool, which may buy.
func launchingFixture(t *testing.T, cloud *fakeCloud, change ...func(*Config)) *fixture {
	f := newFixture(t, cloud, change...)
	f.refresh()
	time.Sleep(ledger.LaunchListLag)
	f.loop()
	return f
}

// until refreshes, with loops of core, for as long as this takes.
func (f *fixture) until(d time.Duration) {
	for range int(d / (10 * time.Second)) {
		time.Sleep(10 * time.Second)
		f.loop()
	}
}

func TestPurchaseByRunInstancesFollowsTheScalingConfigurationAndTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := launchGroup()
		group.Tags[api.TagPriceCap] = "4.5"
		cloud := newFakeCloud(group)
		configuration := cloud.configurations["two-types"]
		configuration.Tags = map[string]string{"team": "vision"}
		configuration.Launch = alicloud.LaunchSettings{Parameters: map[string]string{"ImageId": "m-1", "UserData": "c2VjcmV0"}}
		cloud.configurations["two-types"] = configuration
		f := launchingFixture(t, cloud, func(c *Config) { c.Owner = "this" })
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		require.Len(t, cloud.launches, 1)
		request := cloud.launches[0]
		assert.Empty(t, cloud.scaleCalls)
		assert.Equal(t, []int{3, 1}, []int{request.Amount, request.MinAmount}, "pods that need nothing of each other take what there is")
		assert.Equal(t, []string{a10, "zone-a", "vsw-a"}, []string{request.InstanceType, request.ZoneID, request.VSwitchID})
		assert.Equal(t, alicloud.SpotWithPriceLimit, request.SpotStrategy)
		assert.Equal(t, 4.5, request.SpotPriceLimit)
		assert.Equal(t, configuration.Launch, request.Settings)
		token := request.Tags[api.TagInstancePurchase]
		assert.Equal(t, map[string]string{
			"team": "vision", api.TagCluster + "test": "owned", api.TagInstancePool: "asg-1", api.TagInstancePurchase: token,
			api.TagInstancePurchaseSize: "3", api.TagInstanceOwner: "this",
		}, request.Tags)
		assert.True(t, strings.HasPrefix(request.ClientToken, token))
		assert.Equal(t, 3, f.target(a10InA))
	})
}

func TestLaunchedInstancesServeBeforeTheyAreAttachedAndAreAttachedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := launchingFixture(t, newFakeCloud(launchGroup()))
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(30))
		assert.Equal(t, 30, f.cloud.launches[0].MinAmount, "all or none")
		f.loop()
		assert.Empty(t, f.cloud.attached, "they do not run yet")
		f.cloud.start()
		f.loop()
		group, err := f.provider.NodeGroupForNode(nodeOf("i-0001"))
		require.NoError(t, err)
		assert.Equal(t, a10InA, group.Id())
		assert.Equal(t, 30, f.target(a10InA))
		assert.Len(t, f.cloud.attached, alicloud.MaxAttach)
		f.until(time.Minute)
		assert.Len(t, f.cloud.attached, 30)
		assert.Equal(t, 30, f.target(a10InA))
		assert.Empty(t, f.purchases())
		assert.Len(t, f.cloud.launches, 1)
	})
}

func TestPurchaseByRunInstancesThatIsRefusedOrHasNoAnswerIsMadeOnce(t *testing.T) {
	lost := &alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true}
	for name, test := range map[string]struct {
		errs   []error
		lost   bool
		target int
		calls  int
		born   int
	}{
		"refused for want of stock":              {errs: []error{errNoStock}, calls: 1},
		"busy, then carried out":                 {errs: []error{&alicloud.Error{Code: "Throttling", Class: alicloud.Throttled}}, target: 2, calls: 2, born: 2},
		"answer lost, carried out":               {errs: []error{lost}, lost: true, target: 2, calls: 2, born: 2},
		"answer lost, not carried out":           {errs: []error{lost}, target: 2, calls: 2, born: 2},
		"answer lost, carried out, then refused": {errs: []error{lost, errNoStock}, lost: true, target: 2, calls: 2, born: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newFakeCloud(launchGroup())
				f := launchingFixture(t, cloud)
				cloud.launchErrs, cloud.lost = test.errs, test.lost
				require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
				f.until(30 * time.Second)
				assert.Equal(t, test.target, f.target(a10InA))
				assert.Len(t, cloud.launches, test.calls)
				assert.Len(t, cloud.launched, test.born)
				tokens := map[string]bool{}
				for _, call := range cloud.launches {
					tokens[call.ClientToken] = true
				}
				assert.Len(t, tokens, 1, "it is the same request")
			})
		})
	}
}

func TestGangAboveAHundredIsSeveralCallsAndRolledBackTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		cloud.launchRoom = ptr.To(149)
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(150))
		require.Len(t, cloud.launches, 2)
		assert.Equal(t, []int{100, 50}, []int{cloud.launches[0].Amount, cloud.launches[1].Amount})
		assert.NotEqual(t, cloud.launches[0].ClientToken, cloud.launches[1].ClientToken)
		cloud.start()
		f.until(time.Minute)
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		f.until(2 * time.Minute)
		assert.Empty(t, cloud.launched)
		assert.Len(t, cloud.deleted, 100)
		assert.Empty(t, cloud.attached, "what is given back is not attached")
		assert.Zero(t, f.target(a10InA))
		assert.Empty(t, f.purchases())
	})
}

func TestInstanceThatRunInstancesPromisedAndThatVanishesFailsItsGang(t *testing.T) {
	for name, listed := range map[string]bool{"after it was listed": true, "before it was listed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newFakeCloud(launchGroup())
				f := launchingFixture(t, cloud)
				require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
				if listed {
					f.loop()
				}
				delete(cloud.launched, "i-0002")
				cloud.start()
				f.until(ledger.LaunchListLag + 20*time.Second)
				assert.Len(t, f.events.With("SpotPurchaseFailed"), 1)
				assert.Contains(t, f.events.With("SpotPurchaseFailed")[0], alicloud.CodeCreationFailed)
				require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
				f.until(time.Minute)
				assert.Zero(t, f.target(a10InA))
				assert.Empty(t, f.purchases())
				for id := range cloud.launched {
					assert.Contains(t, append(cloud.deleted, removed(cloud)...), id)
				}
			})
		})
	}
}

// removed are the instances that ESS was asked to remove.
func removed(cloud *fakeCloud) (ids []string) {
	for _, call := range cloud.removeCalls {
		ids = append(ids, call.InstanceIDs...)
	}
	return ids
}

func TestNewProcessFindsWhatTheOldOneLaunched(t *testing.T) {
	for name, test := range map[string]struct {
		hidden []string
		atomic bool
	}{
		"all of it":                    {},
		"a gang":                       {atomic: true},
		"of which some are not listed": {hidden: []string{"i-0001", "i-0003"}},
		"a gang, partly listed":        {hidden: []string{"i-0001", "i-0003"}, atomic: true},
		"a gang, not listed yet":       {hidden: []string{"i-0001", "i-0002", "i-0003", "i-0004"}, atomic: true},
		"of which none is listed yet":  {hidden: []string{"i-0001", "i-0002", "i-0003", "i-0004"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newFakeCloud(launchGroup())
				old := launchingFixture(t, cloud)
				cloud.launchErrs, cloud.lost = []error{errors.New("killed")}, true
				buy := old.group(a10InA).IncreaseSize
				if test.atomic {
					buy = old.group(a10InA).AtomicIncreaseSize
				}
				require.NoError(t, buy(4))
				cloud.hidden, cloud.unlisted = test.hidden, test.hidden

				f := newFixture(t, cloud, occupied())
				f.loop()
				assert.Error(t, f.group(a10InA).IncreaseSize(4), "what was bought before may not be listed yet")
				f.until(20 * time.Second)
				cloud.hidden, cloud.unlisted = nil, nil
				cloud.start()
				f.loop()
				assert.Equal(t, 4, f.target(a10InA))
				f.until(time.Minute)
				assert.Equal(t, 4, f.target(a10InA))
				assert.Len(t, cloud.attached, 4)
				assert.Empty(t, cloud.deleted)
				assert.Empty(t, f.purchases())
				assert.Len(t, cloud.launched, 4)
			})
		})
	}
}

func TestNewProcessGivesBackOfAHalfLaunchedGangWhatIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		old := launchingFixture(t, cloud)
		cloud.launchErrs = []error{nil, &alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true}}
		require.NoError(t, old.group(a10InA).AtomicIncreaseSize(150)) // and it is killed after the first call
		require.Len(t, cloud.launched, 100)
		cloud.start()

		f := newFixture(t, cloud, occupied("i-0007"))
		for range 60 {
			time.Sleep(10 * time.Second)
			f.loop(nodeOf("i-0007"), nodeOf("i-0008"))
			if failed := f.failedNodes(a10InA); len(failed) > 0 {
				require.NoError(t, f.group(a10InA).DeleteNodes(failed))
			}
		}
		assert.Equal(t, []string{"i-0007"}, slices.Collect(maps.Keys(cloud.launched)), "pods run there")
		assert.Equal(t, 1, f.target(a10InA))
		assert.Empty(t, f.purchases())
	})
}

func TestInstancesThatCannotBeAttachedServeOnAreReportedAndGivenBackWithoutESS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		cloud.attachErr = errBusy
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		cloud.start()
		f.until(4 * time.Minute)
		assert.Equal(t, 2, f.target(a10InA))
		assert.Empty(t, f.events.With("SpotPoolProblem"))
		f.until(2 * time.Minute)
		assert.Contains(t, strings.Join(f.events.All(), "\n"), "2 instances were bought for it and are not in it: i-0001, i-0002")
		require.NoError(t, f.group(a10InA).DeleteNodes(nodesOf("i-0001")))
		f.loop()
		assert.Equal(t, []string{"i-0001"}, cloud.deleted)
		assert.Empty(t, cloud.removeCalls, "ESS does not know it")
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestPoolThatRunInstancesCannotServeSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*alicloud.ScalingGroup, *alicloud.ScalingConfiguration)
		why    string
	}{
		"a password": {func(_ *alicloud.ScalingGroup, c *alicloud.ScalingConfiguration) {
			c.Launch.Unsupported = []string{"a password, which cannot be read"}
		}, "a password, which cannot be read"},
		"a desired capacity": {func(g *alicloud.ScalingGroup, _ *alicloud.ScalingConfiguration) { g.DesiredCapacity = ptr.To(0) }, "DisableDesiredCapacity=true"},
		"too many tags": {func(_ *alicloud.ScalingGroup, c *alicloud.ScalingConfiguration) {
			c.Tags = map[string]string{}
			for n := range 14 {
				c.Tags["tag-"+string(rune('a'+n))] = "x"
			}
		}, "has 14 tags"},
		"a price limit for no type": {func(_ *alicloud.ScalingGroup, c *alicloud.ScalingConfiguration) {
			c.SpotStrategy = alicloud.SpotWithPriceLimit
		}, "none for " + v100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				group := launchGroup()
				cloud := newFakeCloud(group)
				configuration := cloud.configurations["two-types"]
				test.change(&group, &configuration)
				cloud.groups["asg-1"], cloud.configurations["two-types"] = group, configuration
				f := launchingFixture(t, cloud)
				assert.Error(t, f.group(a10InA).IncreaseSize(1))
				assert.Contains(t, strings.Join(f.events.All(), "\n"), test.why)
				assert.Empty(t, cloud.launches)
			})
		})
	}
}

func TestNextVSwitchOfTheZoneIsTakenIfOneHasNoAddressLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := groupWithTwoVSwitches(t)
		cloud := newFakeCloud(group)
		cloud.launchErrs = []error{&alicloud.Error{Code: alicloud.CodeNoAddress, Class: alicloud.Quota}}
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		require.Len(t, cloud.launches, 2)
		assert.Equal(t, "vsw-a2", cloud.launches[1].VSwitchID)
		assert.NotEqual(t, cloud.launches[0].ClientToken, cloud.launches[1].ClientToken, "it is another request")
		assert.Len(t, cloud.launched, 1)
	})
}

func TestVSwitchThatHasAddressesAgainIsNotASecondPurchase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := groupWithTwoVSwitches(t)
		cloud := newFakeCloud(group)
		f := launchingFixture(t, cloud)
		cloud.launchErrs = []error{
			&alicloud.Error{Code: alicloud.CodeNoAddress, Class: alicloud.Quota},
			&alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true},
		}
		cloud.lostFrom = 1 // the first was refused, the second carried out
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		f.until(time.Minute)
		assert.Len(t, cloud.launched, 1)
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestPriceLimitHasTheDecimalsThatRunInstancesTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cap, limit := range map[string]float64{"2.0999999999999996": 2.1, "3.14159": 3.141, "4": 4} {
			group := launchGroup()
			group.Tags[api.TagPriceCap] = cap
			cloud := newFakeCloud(group)
			f := launchingFixture(t, cloud, func(c *Config) {
				c.Prices = fixedPrices{{InstanceType: a10, Zone: "zone-a", Spot: true}: 1}
			})
			require.NoError(t, f.group(a10InA).IncreaseSize(1))
			assert.Equal(t, limit, cloud.launches[0].SpotPriceLimit)
		}
	})
}

func TestPoolsAttachSideBySideAndWhatCannotBeAttachedHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := launchGroup(), launchGroup()
		second.ID = "asg-2"
		cloud := newFakeCloud(first, second)
		cloud.unattachable = map[string]error{}
		for n := range 20 {
			cloud.unattachable[fmt.Sprintf("i-%04d", n+1)] = &alicloud.Error{Code: "InvalidInstanceId.InUse", Class: alicloud.Invalid}
		}
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(24))
		require.NoError(t, f.group("asg-2/"+a10+"/zone-a/spot").IncreaseSize(30))
		cloud.start()
		f.until(10 * time.Minute)
		slices.Sort(cloud.attached)
		assert.Len(t, slices.Compact(cloud.attached), 34)
		assert.Contains(t, strings.Join(f.events.All(), "\n"), "20 instances were bought for it and are not in it")
	})
}

func TestInstancesAreFoundAfterThePoolHasGoneBackToItsScalingGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		ids := slices.Collect(maps.Keys(cloud.launched))
		cloud.hidden, cloud.unlisted = ids, ids
		cloud.groups["asg-1"].Tags[api.TagPurchase] = "scale-with-adjustment"
		f.loop()
		cloud.hidden, cloud.unlisted = nil, nil
		cloud.start()
		f.until(time.Minute)
		assert.Equal(t, 3, f.target(a10InA))
		assert.Len(t, cloud.attached, 3)
	})
}

func TestServingInstanceThatAListingLeavesOutIsAskedForByItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		cloud.attachErr = errBusy
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		cloud.start()
		f.until(10 * time.Minute)
		require.Equal(t, 2, f.target(a10InA))
		cloud.hidden = []string{"i-0001"}
		f.loop()
		assert.Equal(t, 2, f.target(a10InA))
	})
}

func TestMinimumAboveWhatAPoolThatLaunchesMayHaveIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := launchGroup()
		group.MaxSize, group.Tags[api.TagMinSize] = 2000, "950"
		f := newFixture(t, newFakeCloud(group))
		f.refresh()
		assert.Contains(t, strings.Join(f.events.All(), "\n"), "is above the pool's maximum of 900")
	})
}

func TestCallThatFoundItsVSwitchFullIsNotMixedUpWithTheOthersOfItsPurchase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := groupWithTwoVSwitches(t)
		cloud := newFakeCloud(group)
		f := launchingFixture(t, cloud)
		cloud.launchErrs = []error{
			nil, &alicloud.Error{Code: alicloud.CodeNoAddress, Class: alicloud.Quota}, &alicloud.Error{Code: "Throttling", Class: alicloud.Throttled},
		}
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(200))
		f.until(time.Minute)
		assert.Len(t, cloud.launched, 200)
	})
}

func TestNothingIsBoughtElsewhereWhileWhatWasLaunchedBeforeMayNotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := spotGroup("asg-2")
		f := newFixture(t, newFakeCloud(launchGroup(), other))
		f.refresh()
		assert.Error(t, f.group("asg-2/"+a10+"/zone-a/spot").IncreaseSize(1))
		time.Sleep(ledger.LaunchListLag)
		f.loop()
		assert.NoError(t, f.group("asg-2/"+a10+"/zone-a/spot").IncreaseSize(1))
	})
}

func TestLaunchesThatCannotBeListedAreAProblemOfTheirPoolOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup(), spotGroup("asg-2"))
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		cloud.start()
		cloud.attachErr = errBusy
		f.loop()
		cloud.launchesErr = errors.New("throttled")
		f.until(2 * time.Minute)
		assert.Equal(t, 2, f.target(a10InA), "they stay as they were")
		assert.Error(t, f.group(a10InA).IncreaseSize(1))
		assert.NoError(t, f.group("asg-2/"+a10+"/zone-a/spot").IncreaseSize(1))
		assert.Contains(t, strings.Join(f.events.All(), "\n"), "cannot list what was launched for it")
		cloud.launchesErr = nil
		f.loop()
		assert.NoError(t, f.group(a10InA).IncreaseSize(1))
	})
}

func TestInstancesOfAWholeGangOfWhichOneWasReclaimedStayAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		old := launchingFixture(t, cloud)
		require.NoError(t, old.group(a10InA).AtomicIncreaseSize(8))
		cloud.start()
		old.until(5 * time.Minute)
		delete(cloud.launched, "i-0003")
		delete(cloud.instances, "i-0003")

		f := newFixture(t, cloud, occupied())
		f.until(5 * time.Minute)
		assert.Equal(t, 7, f.target(a10InA))
		assert.Empty(t, cloud.deleted)
		assert.Empty(t, cloud.removeCalls)
	})
}

func TestHalfAGangThatIsListedLateIsGivenBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		old := launchingFixture(t, cloud)
		cloud.launchErrs = []error{nil, &alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true}}
		require.NoError(t, old.group(a10InA).AtomicIncreaseSize(150))
		cloud.start()
		ids := slices.Collect(maps.Keys(cloud.launched))
		cloud.hidden, cloud.unlisted = ids, ids

		f := newFixture(t, cloud, occupied())
		f.loop()
		cloud.hidden, cloud.unlisted = nil, nil
		f.until(5 * time.Minute)
		assert.Empty(t, cloud.launched)
	})
}

func TestInstanceThatSomebodyPutIntoAnotherScalingGroupIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		cloud.attachErr = errBusy
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		cloud.start()
		f.loop()
		cloud.instances["i-0001"] = alicloud.ScalingInstance{ID: "i-0001", ScalingGroupID: "asg-of-others", LifecycleState: alicloud.LifecycleInService}
		f.loop()
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestUnattachedInstanceThatStoppedItselfIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		cloud.attachErr = errBusy
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		cloud.start()
		f.until(time.Minute)
		stopped := cloud.launched["i-0001"]
		stopped.Status = "Stopped"
		cloud.launched["i-0001"] = stopped
		f.loop()
		require.NoError(t, f.group(a10InA).DeleteNodes(nodesOf("i-0001")))
		assert.Equal(t, []string{"i-0001"}, cloud.deleted)
	})
}

func TestInstancesOfAnotherInstallationAndThoseWithoutAWholeNoteAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		tags := map[string]string{api.TagInstancePool: "asg-1", api.TagInstancePurchase: "t", api.TagInstancePurchaseSize: "1"}
		foreign := maps.Clone(tags)
		foreign[api.TagInstanceOwner] = "another"
		partly := map[string]string{api.TagInstancePool: "asg-1"}
		for id, tags := range map[string]map[string]string{"i-own": tags, "i-foreign": foreign, "i-partly": partly} {
			cloud.launched[id] = alicloud.Instance{ID: id, Status: alicloud.StatusRunning, InstanceType: a10, ZoneID: "zone-a",
				SpotStrategy: alicloud.SpotAsPriceGo, Created: time.Now(), Tags: tags}
		}
		f := launchingFixture(t, cloud, func(c *Config) { c.Owner = "this" })
		f.until(time.Minute)
		assert.Equal(t, []string{"i-own"}, cloud.attached)
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestVSwitchThatAnUnansweredCallMayHaveFilledIsNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := groupWithTwoVSwitches(t)
		cloud := newFakeCloud(group)
		f := launchingFixture(t, cloud)
		cloud.launchErrs = []error{
			&alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true},
			&alicloud.Error{Code: alicloud.CodeNoAddress, Class: alicloud.Quota},
		}
		cloud.lost = true
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		f.until(2 * time.Minute)
		assert.Len(t, cloud.launched, 1)
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestProtectedInstanceThatOneListingOfESSLeavesOutStaysProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		cloud.start()
		f.until(time.Minute)
		cloud.setState(alicloud.LifecycleProtected, "i-0001")
		f.until(time.Minute)
		cloud.hiddenByESS = []string{"i-0001"}
		f.until(time.Minute)
		assert.ErrorIs(t, f.group(a10InA).DeleteNodes(nodesOf("i-0001")), ledger.ErrKept)
		assert.Empty(t, cloud.deleted)
	})
}

func TestHalfAGangThatIsListedAfterItsFailureIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		cloud.launchRoom = ptr.To(149)
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(150))
		ids := slices.Collect(maps.Keys(cloud.launched))
		cloud.hidden, cloud.unlisted = ids, ids
		f.loop()
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		f.loop()
		cloud.hidden, cloud.unlisted = nil, nil
		cloud.start()
		f.until(2 * time.Minute)
		assert.Empty(t, cloud.launched)
	})
}

func TestPoolThatCannotBeListedTakesNothingFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := launchGroup()
		other.ID = "asg-2"
		cloud := newFakeCloud(launchGroup(), other)
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
		f.loop()
		cloud.launchesErr, cloud.unlistable = errors.New("throttled"), "asg-2"
		cloud.hidden = []string{"i-0001"} // its tag is listed late
		f.until(time.Minute)
		cloud.start()
		f.until(time.Minute)
		assert.Empty(t, f.events.With("SpotPurchaseFailed"))
		assert.Equal(t, 2, f.target(a10InA))
		assert.Empty(t, cloud.deleted)
	})
}

func TestLaunchWithoutAnAnswerIsRepeatedWhileNothingCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		cloud.launchErrs = []error{&alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true}}
		cloud.launchesErr = errors.New("throttled")
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		f.until(30 * time.Second)
		assert.Len(t, cloud.launches, 2)
		assert.Len(t, cloud.launched, 2)
	})
}

func TestUnattachedInstancesOfAGroupThatLeftManagementAreNotAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup(), spotGroup("asg-2"))
		cloud.attachErr = errBusy
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		cloud.start()
		f.loop()
		group := cloud.groups["asg-1"]
		group.Tags = map[string]string{}
		cloud.groups["asg-1"], cloud.attachErr = group, nil
		f.until(2 * time.Minute)
		assert.Empty(t, cloud.attached)
		assert.NotContains(t, f.provider.store.Last().Instances, "i-0001")
	})
}

func TestInstancesThatAreListedLongAfterThePoolWentBackAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		ids := slices.Collect(maps.Keys(cloud.launched))
		cloud.hidden, cloud.unlisted = ids, ids
		cloud.groups["asg-1"].Tags[api.TagPurchase] = "scale-with-adjustment"
		f.until(2 * time.Minute)
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		f.until(8 * time.Minute)
		require.Empty(t, f.purchases())
		cloud.hidden, cloud.unlisted = nil, nil
		cloud.start()
		f.until(3 * time.Minute)
		assert.Equal(t, 3, f.target(a10InA))
	})
}

func TestNothingIsAttachedWhileInstancesWaitToBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		cloud.start()
		f.until(time.Minute)
		require.Len(t, cloud.attached, 1)
		cloud.busyUntil = time.Now().Add(time.Minute)
		go func() { assert.NoError(t, f.group(a10InA).DeleteNodes(nodesOf("i-0001"))) }()
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		cloud.start()
		f.until(40 * time.Second)
		assert.Len(t, cloud.attached, 1)
		f.until(2 * time.Minute)
		assert.Len(t, cloud.attached, 2)
		assert.Len(t, cloud.removeCalls[len(cloud.removeCalls)-1].InstanceIDs, 1)
	})
}

func TestAttachedInstanceThatESSListsIncompletelyKeepsItsOffering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		cloud.start()
		f.until(time.Minute)
		attached := cloud.instances["i-0001"]
		attached.SpotStrategy, attached.ZoneID = "", ""
		cloud.instances["i-0001"] = attached
		for range 20 {
			f.until(10 * time.Second)
			require.Equal(t, 1, f.target(a10InA))
		}
	})
}

func TestAttachedInstanceStaysOneOfItsPurchaseWhileLaunchesAreNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := launchingFixture(t, newFakeCloud(launchGroup()))
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		f.cloud.start()
		f.loop()
		launched := f.provider.store.Last().Instances["i-0001"]
		for range 20 {
			f.until(10 * time.Second)
			now := f.provider.store.Last().Instances["i-0001"]
			require.Equal(t, launched.ScalingActivityID, now.ScalingActivityID)
			require.Equal(t, launched.Created, now.Created)
		}
		require.Len(t, f.cloud.attached, 1)
	})
}

func TestNothingIsBoughtAfterAStartThoughThePoolThatLaunchesIsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := launchGroup()
		group.Tags[api.TagMaxSize] = "many"
		f := newFixture(t, newFakeCloud(group, spotGroup("asg-2")))
		f.refresh()
		assert.Error(t, f.group("asg-2/"+a10+"/zone-a/spot").IncreaseSize(1))
	})
}

func TestLaunchTimesOutThoughNothingCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(launchGroup())
		f := launchingFixture(t, cloud)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		cloud.launchesErr = errors.New("throttled")
		f.until(14 * time.Minute)
		assert.Empty(t, f.events.With("SpotPurchaseFailed"))
		f.until(2 * time.Minute)
		require.Len(t, f.events.With("SpotPurchaseFailed"), 1)
		assert.Contains(t, f.events.With("SpotPurchaseFailed")[0], "TimedOut")
	})
}
