package ess

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/remover"
)

const (
	v100InA = "asg-1/" + v100 + "/zone-a/spot"
	v100InB = "asg-1/" + v100 + "/zone-b/spot"
)

var errNoParallel = &alicloud.Error{Code: "InvalidParameter", Message: "The specified ParallelTask is not supported.", Class: alicloud.Invalid}

// accepted returns how many instances each accepted purchase asked for, in order of acceptance.
func (f *fakeCloud) accepted() (deltas []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range len(f.activities) {
		if activity, ok := f.activities[fmt.Sprintf("asa-%d", n)]; ok {
			deltas = append(deltas, activity.Adding)
		}
	}
	return deltas
}

func TestPurchasesAreSentSideBySide(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	for _, id := range []string{a10InA, a10InB, v100InA} {
		require.NoError(t, f.group(id).IncreaseSize(1))
	}
	assert.Len(t, f.cloud.activities, 3)
	for _, request := range f.cloud.scaleCalls {
		assert.False(t, request.Serial)
		assert.False(t, request.Sync)
	}
}

func TestPurchasesOfABusyPoolQueueByTheirWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.alone = true
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(1)) // is sent first
		require.NoError(t, f.group(a10InB).IncreaseSize(2)) // finds the group busy
		time.Sleep(time.Second)
		calls := len(f.cloud.scaleCalls)
		require.NoError(t, f.group(v100InA).IncreaseSize(4))
		require.NoError(t, f.group(v100InB).IncreaseSize(1))
		assert.Len(t, f.cloud.scaleCalls, calls+1, "only what is worth most is tried in a pool that is known to be busy")
		f.refresh()
		assert.Equal(t, []int{1}, f.cloud.accepted())
		assert.Equal(t, 3., metric(t, "gpu_spot_purchase_queue_length", "asg-1"))
		assert.Equal(t, []int{1, 2, 4, 1}, []int{f.target(a10InA), f.target(a10InB), f.target(v100InA), f.target(v100InB)}, "what waits counts")

		for n := range 3 {
			f.cloud.end(fmt.Sprintf("asa-%d", n), "")
			f.refresh()
		}
		assert.Equal(t, []int{1, 4, 2, 1}, f.cloud.accepted(), "what brings the most GPUs goes first")
		assert.Zero(t, metric(t, "gpu_spot_purchase_queue_length", "asg-1"))
	})
}

func TestPurchasesOfOneOfferingThatWaitAreSentAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.alone = true
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(1)) // is sent first
		for range 3 {
			require.NoError(t, f.group(a10InA).IncreaseSize(1))
		}
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
		require.NoError(t, f.group(a10InB).IncreaseSize(1))
		assert.Equal(t, []int{6, 1}, []int{f.target(a10InA), f.target(a10InB)}, "what waits counts")
		for n := range 3 {
			f.cloud.end(fmt.Sprintf("asa-%d", n), "")
			f.refresh()
		}
		assert.Equal(t, []int{1, 3, 2, 1}, f.cloud.accepted(), "a gang is all or nothing, and stays by itself")
		note, ours := ledger.NoteOf(f.cloud.activities["asa-1"])
		require.True(t, ours)
		assert.Equal(t, 3, note.Count, "the next leader reads it")
		tokens := map[string]int{}
		for _, request := range f.cloud.scaleCalls {
			if delta, seen := tokens[request.ClientToken]; seen {
				assert.Equal(t, delta, request.Delta, "the same token is the same request")
			}
			tokens[request.ClientToken] = request.Delta
		}
	})
}

func TestPurchaseThatMayHaveBeenCarriedOutIsNotMadeLarger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		f.cloud.scaleErrs = []error{errLost}
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		f.refresh()
		assert.ElementsMatch(t, []int{2, 3}, f.cloud.accepted())
		assert.Equal(t, 5, f.target(a10InA))
	})
}

func TestWhatWaitedLongGoesBeforeWhatIsWorthMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.alone = true
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		require.NoError(t, f.group(a10InB).IncreaseSize(1))
		time.Sleep(ledger.Overdue + time.Second)
		require.NoError(t, f.group(v100InA).IncreaseSize(4))
		f.cloud.end("asa-0", "")
		f.refresh()
		assert.Equal(t, []int{3, 1}, f.cloud.accepted(), "nothing starves")
	})
}

func TestPurchaseThatIsRefusedForGoodHoldsUpNoOther(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.alone = true
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	require.NoError(t, f.group(a10InB).IncreaseSize(2))
	require.NoError(t, f.group(v100InA).IncreaseSize(1))
	f.cloud.end("asa-0", "")
	f.cloud.scaleErrs = []error{errRefused}
	f.refresh()
	assert.Len(t, f.failedNodes(a10InB), 2)
	assert.Equal(t, []int{1, 1}, f.cloud.accepted())
}

func TestPoolWhoseCloudRefusesParallelTaskIsSentOneByOneWithoutIt(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.scaleErrs = []error{errNoParallel}
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	require.Len(t, f.cloud.scaleCalls, 2)
	first, second := f.cloud.scaleCalls[0], f.cloud.scaleCalls[1]
	assert.True(t, second.Serial)
	assert.NotEqual(t, first.ClientToken, second.ClientToken, "it is another request")
	note, ours := ledger.NoteOf(f.cloud.activities["asa-0"])
	require.True(t, ours)
	assert.Equal(t, second.ClientToken, note.Token)
	assert.Empty(t, f.failedNodes(a10InA))
	assert.Equal(t, 2, f.target(a10InA))

	require.NoError(t, f.group(a10InB).IncreaseSize(1))
	assert.True(t, f.cloud.scaleCalls[2].Serial, "the pool is known")
	f.cloud.end("asa-0", "", f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")...)
	f.cloud.end("asa-1", "", f.cloud.launch(1, "asg-1", "asa-1", a10, "zone-b")...)
	f.refresh()
	assert.Empty(t, f.purchases())
}

func desiring(group alicloud.ScalingGroup) alicloud.ScalingGroup {
	group.DesiredCapacity = ptr.To(0)
	return group
}

func TestPurchasesOfAGroupWithADesiredCapacityNeverOverwriteEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(desiring(spotGroup("asg-1"))))
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		require.NoError(t, f.group(a10InB).IncreaseSize(1))
		f.refresh()
		require.Len(t, f.cloud.scaleCalls, 1, "the new capacity counts from what is stable: the first purchase has to be over")
		assert.True(t, f.cloud.scaleCalls[0].Sync)

		ids := f.cloud.launch(3, "asg-1", "asa-0", a10, "zone-a")
		f.cloud.setState(alicloud.LifecyclePending, ids[0])
		f.cloud.end("asa-0", "", ids...)
		f.refresh()
		assert.Len(t, f.cloud.scaleCalls, 1, "one is not in service yet")
		f.cloud.setState(alicloud.LifecycleInService, ids[0])
		f.refresh() // finds that out
		f.cloud.activities["asa-ess"] = alicloud.Activity{ID: "asa-ess", ScalingGroupID: "asg-1", Status: alicloud.ActivityInProgress}
		f.refresh()
		assert.Len(t, f.cloud.scaleCalls, 1, "ESS replaces an instance")
		delete(f.cloud.activities, "asa-ess")
		f.refresh()
		require.Len(t, f.cloud.scaleCalls, 2)
		assert.Equal(t, []int{3, 1}, []int{f.target(a10InA), f.target(a10InB)})
	})
}

func TestPurchaseThatOnlyChangedTheCapacityCountsOnceAndIsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(desiring(spotGroup("asg-1"))))
		old := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
		f.cloud.capacityChange = true
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		for range 3 {
			f.refresh()
			assert.Equal(t, 3, f.target(a10InA), "one was there, two are bought")
		}
		f.cloud.launch(2, "asg-1", "asa-of-ess-itself", a10, "zone-a")
		for range 3 {
			f.refresh()
			assert.Equal(t, 3, f.target(a10InA), "they have come")
		}
		assert.Len(t, f.cloud.scaleCalls, 1, "what was answered is not sent again")
		assert.Empty(t, f.purchases())
		assert.Contains(t, f.cloud.instances, old[0])

		assert.Equal(t, 3, f.group(a10InA).MaxSize(), "nothing more is bought of it")
		said := f.events.With("SpotPoolProblem")
		assert.Contains(t, said[len(said)-1], "DisableDesiredCapacity=true")
		fixed := f.cloud.groups["asg-1"]
		fixed.DesiredCapacity = nil
		f.cloud.groups["asg-1"] = fixed
		f.refresh()
		assert.Equal(t, 10, f.group(a10InA).MaxSize())
	})
}

func TestPoolWhoseGroupBuysTheRestByItselfIsNotBoughtFrom(t *testing.T) {
	f := newFixture(t, newFakeCloud(desiring(spotGroup("asg-1"))))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	state := func(desired, total int) {
		group := f.cloud.groups["asg-1"]
		group.DesiredCapacity, group.TotalCapacity = ptr.To(desired), total
		f.cloud.groups["asg-1"] = group
		f.refresh()
	}
	state(3, 0)
	assert.Equal(t, 10, f.group(a10InA).MaxSize(), "the three are on their way")
	f.cloud.end("asa-0", "OperationDenied.NoStock", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
	state(3, 1)
	require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
	state(3, 1)
	assert.Equal(t, 1, f.group(a10InA).MaxSize(), "two of them will come when there is stock, whatever is bought until then")
	said := f.events.With("SpotPoolProblem")
	assert.Contains(t, said[len(said)-1], "desired capacity of 3 and 1 instances")
	assert.Contains(t, said[len(said)-1], "DisableDesiredCapacity=true")
	state(1, 1)
	assert.Equal(t, 9, f.group(v100InA).MaxSize())
}

func TestPurchaseThatOnlyChangedTheCapacityFailsAsTheActivityThatESSBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(desiring(spotGroup("asg-1"))))
		f.cloud.capacityChange = true
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		time.Sleep(10 * time.Second)
		f.cloud.activities["asa-ess"] = alicloud.Activity{ID: "asa-ess", ScalingGroupID: "asg-1", Adding: 2, Status: alicloud.ActivityFailed,
			ErrorCode: "OperationDenied.NoStock", Started: time.Now(), Ended: time.Now()}
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 2)
		assert.Contains(t, f.events.With("SpotPurchaseFailed")[0], "OperationDenied.NoStock")
		assert.Empty(t, f.events.With("SpotPurchaseNoteLost"), "ESS attaches none")
	})
}

func TestPurchaseThatCouldNotBeSentIsGivenUpWithoutBackingItsOfferingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := 0
		f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")), func(c *Config) { c.Wake = func() { woken++ } })
		f.cloud.activities["asa-foreign"] = alicloud.Activity{ID: "asa-foreign", ScalingGroupID: "asg-1", Status: alicloud.ActivityInProgress}
		f.cloud.scaleErrs = slices.Repeat([]error{errBusy}, 100)
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		for range 12 {
			f.refresh()
			assert.Equal(t, 2, f.target(a10InA))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Second)
		f.refresh()
		assert.Zero(t, f.target(a10InA))
		assert.Empty(t, f.failedNodes(a10InA), "the offering is not to blame")
		assert.Empty(t, f.events.With("SpotPurchaseFailed"))
		require.Len(t, f.events.With("SpotPurchaseGivenUp"), 1)
		assert.Contains(t, f.events.With("SpotPurchaseGivenUp")[0], "ScalingActivityInProgress")
		assert.Equal(t, 1, woken)
		assert.Zero(t, f.group(a10InA).MaxSize(), "core has to look in another pool")
		assert.Equal(t, 10, f.group("asg-2/"+a10+"/zone-a/spot").MaxSize())
		assert.Empty(t, f.purchases())

		f.cloud.scaleErrs = nil
		time.Sleep(ledger.CongestedFor)
		f.refresh()
		assert.Zero(t, f.group(a10InA).MaxSize(), "the group is still busy")
		delete(f.cloud.activities, "asa-foreign")
		f.refresh()
		assert.Equal(t, 10, f.group(a10InA).MaxSize())
	})
}

func TestPatienceBeginsWithTheAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := spotGroup("asg-1")
		group.Tags["gpu-spot.autoscaling/max-node-provision-time"] = "90s"
		f := newFixture(t, newFakeCloud(group))
		f.refresh()
		f.cloud.scaleErrs = slices.Repeat([]error{errBusy}, 11)
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		for range 11 { // behind another activity of the group
			time.Sleep(10 * time.Second)
			f.refresh()
		}
		require.Len(t, f.cloud.activities, 1, "sent, after all")
		time.Sleep(80 * time.Second)
		f.refresh()
		assert.Empty(t, f.failedNodes(a10InA), "it was sent a moment ago")
		time.Sleep(11 * time.Second)
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 2)
	})
}

func TestRemovalsLetPurchasesGoFirstButNotForEver(t *testing.T) {
	for name, test := range map[string]struct {
		busy  time.Duration // how long the group accepts no purchase
		after time.Duration // when the removal is sent at the latest
	}{
		"a purchase waits for a moment": {busy: 20 * time.Second, after: 35 * time.Second},
		"a purchase waits for long":     {busy: 3 * time.Minute, after: remover.PurchasesFirst + 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
				f.refresh()
				f.cloud.scaleErrs = slices.Repeat([]error{errBusy}, int(test.busy/(10*time.Second)))
				require.NoError(t, f.group(a10InB).IncreaseSize(1))
				began := time.Now()
				done := make(chan time.Duration, 1)
				go func() {
					assert.NoError(t, f.group(a10InA).DeleteNodes(nodesOf(ids...)))
					done <- time.Since(began)
				}()
				for range 12 {
					time.Sleep(10 * time.Second)
					f.refresh()
				}
				waited := <-done
				assert.Greater(t, waited, min(test.busy, remover.PurchasesFirst)-10*time.Second)
				assert.Less(t, waited, test.after)
			})
		})
	}
}
