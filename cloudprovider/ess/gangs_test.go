package ess

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

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

func TestWhatComesShortForGangsIsKeptByWholeGangs(t *testing.T) {
	for came, kept := range map[int]int{0: 0, 1: 0, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6, 8: 8, 9: 8, 10: 10} {
		t.Run(fmt.Sprintf("%d of 10", came), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(bigGroup()), occupied())
				f.buyForGangs(t)
				ids := f.cloud.launch(came, "asg-1", "asa-1", a10, "zone-a")
				f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
				f.loop(nodesOf(ids...)...)
				assert.Len(t, f.failedNodes(a10InA), 10-kept)
				assert.Equal(t, 10, f.target(a10InA), "until core has deleted the failed ones")
				if kept < 10 {
					require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
				}
				assert.Equal(t, kept, f.target(a10InA))
				time.Sleep(time.Minute)
				f.loop(nodesOf(ids...)...)
				time.Sleep(time.Minute)
				f.loop(nodesOf(ids...)...)
				synctest.Wait()
				assert.Len(t, f.cloud.instances, 1+kept, "what makes no whole gang is given back")
				assert.Equal(t, kept, f.target(a10InA))
				assert.Empty(t, f.failedNodes(a10InA), "nothing fails twice")
				time.Sleep(ledger.RollBackTime)
				f.loop(nodesOf(ids...)...)
				assert.Empty(t, f.purchases())
				synctest.Wait()
				assert.Len(t, f.cloud.instances, 1+kept)
			})
		})
	}
}

func TestGangsOfAJointPurchaseAreDecidedOnceItIsKnownOfAllInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.buyForGangs(t)
		ids := f.cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		show := f.cloud.hide(ids[:4]...)
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		f.cloud.endAs("asa-1", alicloud.ActivityWarning)
		f.loop(nodesOf(ids...)...)
		f.loop(nodesOf(ids...)...)
		assert.Empty(t, f.failedNodes(a10InA))
		assert.Equal(t, 10, f.target(a10InA))
		show()
		time.Sleep(time.Minute)
		f.loop(nodesOf(ids...)...)
		assert.Len(t, f.failedNodes(a10InA), 2)
		f.loop(nodesOf(ids...)...)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, f.cloud.instances, 1+8)
	})
}

func TestInstanceOfNoWholeGangStaysIfPodsRunOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := sets.New[string]()
		f := newFixture(t, newFakeCloud(bigGroup()), func(c *Config) {
			c.Occupied = func(node *apiv1.Node) bool { return running.Has(node.Name) }
		})
		f.buyForGangs(t)
		ids := f.cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		running.Insert(ids...) // the gangs that are whole may have chosen any
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		for range 3 {
			f.loop(nodesOf(ids...)...)
		}
		assert.Len(t, f.failedNodes(a10InA), 2)
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		synctest.Wait()
		assert.Len(t, f.cloud.instances, 1+9)
		assert.Equal(t, 9, f.target(a10InA))
	})
}

func TestWholeGangsAreMadeOfInstancesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.buyForGangs(t)
		ids := f.cloud.launch(8, "asg-1", "asa-1", a10, "zone-a")
		f.reclaiming = sets.New(ids[0])
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		f.loop(nodesOf(ids...)...)
		assert.Len(t, f.failedNodes(a10InA), 4, "six of the seven others make a gang of four and one of two")
	})
}

func TestPodThatComesAfterTheInspectionKeepsItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := sets.New[string]()
		f := newFixture(t, newFakeCloud(bigGroup()), func(c *Config) {
			c.Occupied = func(node *apiv1.Node) bool { return running.Has(node.Name) }
		})
		f.buyForGangs(t)
		ids := f.cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		f.loop(nodesOf(ids...)...)
		f.cloud.busyUntil = time.Now().Add(time.Minute)
		f.loop(nodesOf(ids...)...)
		require.Len(t, f.cloud.removeCalls, 1, "without pods it is to go, but the scaling group is busy")
		running.Insert(ids...)
		for range 20 {
			time.Sleep(10 * time.Second)
			f.loop(nodesOf(ids...)...)
		}
		synctest.Wait()
		assert.Len(t, f.cloud.removeCalls, 1)
		assert.Len(t, f.cloud.instances, 1+9)
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		assert.Equal(t, 9, f.target(a10InA))
	})
}

func TestInstancesThatACloudReleasesMakeNoWholeGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.buyForGangs(t)
		ids := f.cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		f.cloud.setState(alicloud.LifecyclePending, ids[4:]...)
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		f.loop(nodesOf(ids...)...)
		assert.Len(t, f.failedNodes(a10InA), 6, "an activity that failed leaves none but those that serve")
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

func TestWhatAGangLosesAfterwardsIsBoughtAnewAndTheRestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()), occupied())
		f.buyForGangs(t)
		ids := f.cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		f.cloud.setState(alicloud.LifecyclePending, ids...)
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		f.cloud.endAs("asa-1", alicloud.ActivityWarning)
		for range 2 {
			f.loop(nodesOf(ids...)...)
		}
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		require.Equal(t, 8, f.target(a10InA))

		f.cloud.release(ids[0]) // the cloud rolls it back late
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 1, "nobody knows which gang uses it")
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		assert.Equal(t, 7, f.target(a10InA))
		time.Sleep(time.Minute)
		f.loop(nodesOf(ids...)...)
		synctest.Wait()
		assert.Len(t, f.cloud.instances, 1+7)
	})
}

func TestNewProcessKeepsWhatCameForSeveralGangs(t *testing.T) {
	for name, test := range map[string]struct {
		restart func(old *fixture, nodes []*apiv1.Node)
		kept    int
	}{
		"killed before it saw the end": {func(*fixture, []*apiv1.Node) {}, 9},
		"killed after it saw the end":  {func(old *fixture, nodes []*apiv1.Node) { old.loop(nodes...) }, 9},
		"killed after it gave back":    {func(old *fixture, nodes []*apiv1.Node) { old.loop(nodes...); old.loop(nodes...) }, 8},
	} {
		for _, status := range []string{alicloud.ActivityFailed, alicloud.ActivityWarning} {
			t.Run(name+", "+status, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cloud := newFakeCloud(bigGroup())
					old := newFixture(t, cloud, occupied())
					old.buyForGangs(t)
					ids := cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
					cloud.end("asa-1", "OperationDenied.NoStock", ids...)
					cloud.endAs("asa-1", status)
					test.restart(old, nodesOf(ids...))

					f := newFixture(t, cloud, occupied())
					for range 6 {
						f.loop(nodesOf(ids...)...)
						if failed := f.failedNodes(a10InA); len(failed) > 0 {
							require.NoError(t, f.group(a10InA).DeleteNodes(failed))
						}
						time.Sleep(time.Minute)
					}
					synctest.Wait()
					assert.Len(t, cloud.instances, 1+test.kept)
					assert.Equal(t, test.kept, f.target(a10InA))
				})
			})
		}
	}
}
