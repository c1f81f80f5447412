package ess

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

func bigGroup() alicloud.ScalingGroup {
	group := spotGroup("asg-1")
	group.MaxSize = 500
	return group
}

// buyForGangs buys for gangs of four, four and two while the pool is busy, and lets their purchase, asa-1, be accepted.
func (f *fixture) buyForGangs(t *testing.T) {
	t.Helper()
	f.cloud.alone = true
	f.refresh()
	require.NoError(t, f.group(a10InB).IncreaseSize(1)) // is sent first
	for _, size := range []int{4, 4, 2} {
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(size))
	}
	f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-b")...)
	f.refresh()
	require.Equal(t, []int{1, 10}, f.cloud.accepted())
}

func TestGangsOfOneOfferingThatWaitShareAPurchase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.buyForGangs(t)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		assert.Equal(t, 11, f.target(a10InA))
		f.cloud.end("asa-1", "", f.cloud.launch(10, "asg-1", "asa-1", a10, "zone-a")...)
		f.refresh()
		assert.Equal(t, []int{1, 10, 1}, f.cloud.accepted(), "other pods are bought for apart")
		assert.Empty(t, f.failedNodes(a10InA))
		assert.Equal(t, 11, f.target(a10InA))
	})
}

func TestGangsThatAreBoughtForInOneLoopShareAPurchase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.refresh()
		require.NoError(t, f.group(a10InB).IncreaseSize(1)) // shows that the pool delivers what it is asked for
		f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-b")...)
		f.refresh()
		f.provider.Purchases().Gather(func(func()) {
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
			require.NoError(t, f.group(a10InB).AtomicIncreaseSize(3))
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
			assert.Equal(t, []int{1}, f.cloud.accepted())
			assert.Equal(t, 6, f.target(a10InA), "it counts from the call on")
		})
		assert.ElementsMatch(t, []int{1, 6, 3}, f.cloud.accepted())
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(5))
		assert.ElementsMatch(t, []int{1, 6, 3, 5}, f.cloud.accepted(), "later ones are sent at once")
	})
}

func TestSharedPurchaseIsSentOnceAlsoToABusyGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.refresh()
		require.NoError(t, f.group(a10InB).IncreaseSize(1)) // shows that the pool delivers what it is asked for
		f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-b")...)
		f.refresh()
		sent := 0
		f.cloud.refuses = func(alicloud.ScaleRequest) error {
			sent++
			return &alicloud.Error{Code: alicloud.CodeActivityInProgress, Class: alicloud.Conflict}
		}
		f.provider.Purchases().Gather(func(func()) {
			for range 5 {
				require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
			}
		})
		assert.Equal(t, 1, sent)
	})
}

func TestPurchaseIsForALimitedNumberOfGangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.cloud.alone = true
		f.refresh()
		for range 120 {
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
		}
		assert.Equal(t, 240, f.target(a10InA))
		for n := range 4 {
			f.cloud.end(fmt.Sprintf("asa-%d", n), "")
			f.refresh()
		}
		assert.ElementsMatch(t, []int{2, 100, 100, 38}, f.cloud.accepted())
	})
}

func TestGangsThatAreRefusedTogetherAreBoughtForApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.cloud.alone = true
		quota := 8
		f.cloud.refuses = func(request alicloud.ScaleRequest) error {
			if request.InstanceType != a10 || request.VSwitchIDs[0] != "vsw-a" || request.Delta <= quota {
				return nil
			}
			return &alicloud.Error{Code: "QuotaExceed.ElasticQuota", Class: alicloud.Quota}
		}
		f.refresh()
		require.NoError(t, f.group(a10InB).IncreaseSize(1))
		for _, size := range []int{4, 4, 2} {
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(size))
		}
		f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-b")...)
		for n := range 4 {
			f.refresh()
			if activity, bought := f.cloud.activities[fmt.Sprintf("asa-%d", n+1)]; bought {
				quota -= activity.Adding
				f.cloud.end(activity.ID, "", f.cloud.launch(activity.Adding, "asg-1", activity.ID, a10, "zone-a")...)
			}
		}
		f.refresh()
		assert.Equal(t, []int{1, 4, 4}, f.cloud.accepted())
		assert.Len(t, f.failedNodes(a10InA), 2)
		assert.Equal(t, 10, f.target(a10InA))
	})
}

func TestGangJoinsNoPurchaseThatWillBeGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.cloud.alone = true
		f.refresh()
		require.NoError(t, f.group(a10InB).IncreaseSize(1))
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		time.Sleep(ledger.Overdue + time.Second)
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(3))
		assert.Len(t, f.purchases(), 3)
		time.Sleep(time.Minute)
		f.refresh()
		assert.Equal(t, 3, f.target(a10InA), "only the first was waited for too long")
	})
}

func TestWhatComesForSeveralGangsStays(t *testing.T) {
	for _, status := range []string{alicloud.ActivityFailed, alicloud.ActivityWarning} {
		for came := range 11 {
			t.Run(fmt.Sprintf("%d of 10, %s", came, status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, newFakeCloud(bigGroup()), occupied())
					f.buyForGangs(t)
					ids := f.cloud.launch(came, "asg-1", "asa-1", a10, "zone-a")
					f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
					f.cloud.endAs("asa-1", status)
					for range 5 {
						f.loop(nodesOf(ids...)...)
						time.Sleep(time.Minute)
					}
					failed := f.failedNodes(a10InA)
					assert.Len(t, failed, 10-came)
					if len(failed) > 0 {
						require.NoError(t, f.group(a10InA).DeleteNodes(failed))
					}
					f.loop(nodesOf(ids...)...)
					synctest.Wait()
					assert.Equal(t, came, f.target(a10InA))
					assert.Len(t, f.cloud.instances, 1+came, "nobody knows which gang uses which instance")
					assert.Empty(t, f.cloud.removeCalls)
					assert.Empty(t, f.purchases())
				})
			})
		}
	}
}

func TestNewProcessKeepsWhatCameForSeveralGangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(bigGroup())
		newFixture(t, cloud).buyForGangs(t)
		ids := cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		cloud.end("asa-1", "OperationDenied.NoStock", ids...)

		f := newFixture(t, cloud, occupied())
		for range 3 {
			f.loop(nodesOf(ids...)...)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		assert.Len(t, cloud.instances, 1+9)
		assert.Equal(t, 9, f.target(a10InA))
	})
}
