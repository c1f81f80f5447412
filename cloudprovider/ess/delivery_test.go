package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

// hide removes instances from the list of instances. The function that it returns lists them again.
func (f *fakeCloud) hide(ids ...string) (show func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hidden := map[string]alicloud.ScalingInstance{}
	for _, id := range ids {
		hidden[id] = f.instances[id]
		delete(f.instances, id)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for id, instance := range hidden {
			f.instances[id] = instance
		}
	}
}

// change edits the activity.
func (f *fakeCloud) change(activityID string, edit func(*alicloud.Activity)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	activity := f.activities[activityID]
	edit(&activity)
	f.activities[activityID] = activity
}

func TestInstancesThatAreRolledBackDidNotArrive(t *testing.T) {
	for name, test := range map[string]struct {
		// end ends asa-0, which created the instances; they are still Pending.
		end    func(f *fakeCloud, ids []string)
		failed int
		code   string
		told   bool
	}{
		"all of a failed activity are gone": {
			end: func(f *fakeCloud, ids []string) {
				f.hide(ids...)
				f.end("asa-0", "OperationDenied.NoStock")
			},
			failed: 3, code: "OperationDenied.NoStock", told: true,
		},
		"the activity names one that is still listed": {
			end: func(f *fakeCloud, ids []string) {
				f.setState(alicloud.LifecycleInService, ids[1:]...)
				f.end("asa-0", "QuotaExceed.ElasticQuota", ids...)
				f.change("asa-0", func(a *alicloud.Activity) { a.Status, a.FailedInstances = alicloud.ActivityWarning, ids[:1] })
			},
			failed: 1, code: "QuotaExceed.ElasticQuota", told: true,
		},
		"one is gone, and nothing names it": {
			end: func(f *fakeCloud, ids []string) {
				f.setState(alicloud.LifecycleInService, ids[1:]...)
				f.hide(ids[0])
				f.end("asa-0", "OperationDenied.NoStock", ids[1:]...)
				f.change("asa-0", func(a *alicloud.Activity) { a.Status = alicloud.ActivityWarning })
			},
			failed: 1, code: "OperationDenied.NoStock",
		},
		"one is being removed when the activity ends, and then gone": {
			end: func(f *fakeCloud, ids []string) {
				f.setState(alicloud.LifecycleInService, ids[1:]...)
				f.setState(alicloud.LifecycleRemoving, ids[0])
				f.end("asa-0", "OperationDenied.NoStock", ids...)
				f.change("asa-0", func(a *alicloud.Activity) { a.Status = alicloud.ActivityWarning })
			},
			failed: 1, code: "OperationDenied.NoStock",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.refresh()
				require.NoError(t, f.group(a10InA).IncreaseSize(3))
				ids := f.cloud.launch(3, "asg-1", "asa-0", a10, "zone-a")
				f.cloud.setState(alicloud.LifecyclePending, ids...)
				f.refresh()
				assert.Equal(t, 3, f.target(a10InA))

				test.end(f.cloud, ids)
				f.refresh()
				if test.told {
					assert.Len(t, f.failedNodes(a10InA), test.failed, "at once")
					assert.Equal(t, 3, f.target(a10InA), "one that is still listed is no capacity")
				}
				f.cloud.hide(ids[0]) // it is released
				f.refresh()
				failed := f.failedNodes(a10InA)
				assert.Len(t, failed, test.failed, "core backs the offering off")
				assert.Equal(t, 3, f.target(a10InA))
				said := f.events.With("SpotPurchaseFailed")
				require.Len(t, said, 1)
				assert.Contains(t, said[0], test.code)
				assert.Contains(t, said[0], ids[0], "what was rolled back is named")

				require.NoError(t, f.group(a10InA).DeleteNodes(failed))
				assert.Equal(t, 3-test.failed, f.target(a10InA))
				time.Sleep(ledger.RollBackTime + time.Second)
				f.refresh()
				assert.Empty(t, f.purchases())
			})
		})
	}
}

func TestInstanceThatVanishesWhileItsActivityIsUnderWayIsStillAwaited(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	ids := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	f.cloud.setState(alicloud.LifecyclePending, ids...)
	f.refresh()
	f.cloud.hide(ids[0])
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA), "the activity may try again")
	assert.Empty(t, f.failedNodes(a10InA))
}

func TestGangThatLosesOneToARollBackIsGivenBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		ids := f.cloud.launch(4, "asg-1", "asa-0", a10, "zone-a")
		f.cloud.setState(alicloud.LifecyclePending, ids[0])
		f.cloud.end("asa-0", "OperationDenied.NoStock", ids...)
		f.cloud.change("asa-0", func(a *alicloud.Activity) { a.Status = alicloud.ActivityWarning })
		f.refresh()
		assert.Equal(t, 4, f.target(a10InA), "all four are there")
		assert.Empty(t, f.events.With("SpotPurchaseRolledBack"))

		f.cloud.hide(ids[0])
		f.refresh()
		assert.Zero(t, f.target(a10InA))
		assert.Empty(t, f.failedNodes(a10InA), "core would back off for smaller gangs, too")
		assert.Equal(t, 3, f.room(a10InA))
		assert.Len(t, f.events.With("SpotPurchaseFailed"), 1)
		assert.Len(t, f.events.With("SpotPurchaseRolledBack"), 1)
		time.Sleep(time.Second)
		f.refresh()
		assert.Empty(t, f.cloud.instances)
	})
}

func TestWhatIsCreatedAndNotYetListedCounts(t *testing.T) {
	for name, tell := range map[string]func(a *alicloud.Activity, ids []string){
		"where the activity names its instances":       func(a *alicloud.Activity, ids []string) { a.CreatedInstances = ids },
		"where it says how many there are":             func(a *alicloud.Activity, ids []string) { a.CreatedCapacity = len(ids) },
		"where it says no more than that it is over":   func(*alicloud.Activity, []string) {},
		"where it names them and came short otherwise": func(a *alicloud.Activity, ids []string) { a.CreatedInstances, a.Status = ids, alicloud.ActivityWarning },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.refresh()
				require.NoError(t, f.group(a10InA).IncreaseSize(2))
				ids := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
				show := f.cloud.hide(ids...)
				f.cloud.end("asa-0", "")
				f.cloud.change("asa-0", func(a *alicloud.Activity) { tell(a, ids) })
				for range 10 {
					f.refresh()
					assert.Equal(t, 2, f.target(a10InA), "they exist: nothing is to be bought for them again")
					assert.Equal(t, 10, f.group(a10InA).MaxSize())
					time.Sleep(10 * time.Second)
				}
				show()
				f.refresh()
				assert.Equal(t, 2, f.target(a10InA))
				assert.Empty(t, f.failedNodes(a10InA))
				assert.Empty(t, f.purchases())
			})
		})
	}
}

func TestInstanceThatIsListedWithoutItsTypeCountsForItsPurchase(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	ids := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	full := f.cloud.instances[ids[0]]
	f.cloud.instances[ids[0]] = alicloud.ScalingInstance{ID: ids[0], ScalingGroupID: "asg-1", ScalingActivityID: "asa-0", LifecycleState: alicloud.LifecyclePending}
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA))
	f.cloud.end("asa-0", "", ids...)
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA), "the activity is over, and ESS does not say yet what it is")
	assert.Len(t, f.groupIDs(), 4, "it is no offering of its own")
	f.cloud.instances[ids[0]] = full
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA))
	assert.Empty(t, f.purchases())
}

func TestNewProcessCountsWhatIsCreatedAndNotYetListed(t *testing.T) {
	old := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	old.refresh()
	require.NoError(t, old.group(a10InA).IncreaseSize(2))
	ids := old.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	show := old.cloud.hide(ids...)
	old.cloud.end("asa-0", "", ids...)

	f := newFixture(t, old.cloud)
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA))
	show()
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA))
	assert.Empty(t, f.purchases())
}

func TestInstanceThatCameAndWentIsNoFailure(t *testing.T) {
	for name, seen := range map[string]bool{"after it was listed": true, "before it was listed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.refresh()
				require.NoError(t, f.group(a10InA).IncreaseSize(2))
				came := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
				if seen {
					f.refresh()
				}
				f.cloud.end("asa-0", "", came...)
				f.cloud.hide(came[0])
				f.refresh()
				time.Sleep(ledger.DeliveryLag + time.Second)
				f.refresh()
				assert.Equal(t, 1, f.target(a10InA))
				assert.Empty(t, f.failedNodes(a10InA))
				assert.Empty(t, f.purchases())
			})
		})
	}
}

func TestWhatNeverIsListedOfAnActivityThatCameShortFailsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		f.cloud.end("asa-0", "OperationDenied.NoStock", "i-never-seen")
		f.cloud.change("asa-0", func(a *alicloud.Activity) { a.Status = alicloud.ActivityWarning })
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 2, "one may be listed yet")
		time.Sleep(ledger.DeliveryLag + time.Second)
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 3)
	})
}

func TestFailureKeepsWhatTheActivitySays(t *testing.T) {
	for name, test := range map[string]struct {
		activity alicloud.Activity
		says     []string
	}{
		"a code and a text": {
			alicloud.Activity{ErrorCode: "InvalidSystemDiskCategory.ValueNotSupported", ErrorMessage: "not valid",
				StatusDetail: `Fail to create Instances (code:"InvalidSystemDiskCategory.ValueNotSupported", msg:"not valid").`},
			[]string{"InvalidSystemDiskCategory.ValueNotSupported", "Fail to create Instances"},
		},
		"a text only": {alicloud.Activity{StatusDetail: "nobody knows why"}, []string{"CameShort", "nobody knows why"}},
		"nothing":     {alicloud.Activity{}, []string{"CameShort", "asa-0 ended as Failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.refresh()
			require.NoError(t, f.group(a10InA).IncreaseSize(1))
			f.cloud.change("asa-0", func(a *alicloud.Activity) {
				a.Status, a.ErrorCode, a.ErrorMessage, a.StatusDetail = alicloud.ActivityFailed, test.activity.ErrorCode, test.activity.ErrorMessage, test.activity.StatusDetail
			})
			f.refresh()
			said := f.events.With("SpotPurchaseFailed")
			require.Len(t, said, 1)
			for _, text := range test.says {
				assert.Contains(t, said[0], text)
			}
		})
	}
}
