package ess

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// buyBundle buys four instances of asg-1 and three of asg-2 for one gang.
func (f *fixture) buyBundle() {
	f.Helper()
	f.provider.Purchases().Bundle(func() bool {
		require.NoError(f, f.group(a10InA).AtomicIncreaseSize(4))
		require.NoError(f, f.group(otherA10InA).AtomicIncreaseSize(3))
		require.Empty(f, f.cloud.scaleCalls, "nothing is sent before all of it is planned")
		return true
	})
	require.Len(f, f.cloud.scaleCalls, 2)
}

// activityOf returns the activity of the pool's purchase.
func (f *fixture) activityOf(poolID string) string {
	f.Helper()
	for id, activity := range f.cloud.activities {
		if activity.ScalingGroupID == poolID {
			return id
		}
	}
	require.Fail(f, "no activity", poolID)
	return ""
}

// nodesOn returns the Nodes of all instances. Those of the occupied have pods.
func (f *fixture) nodes() (nodes []*apiv1.Node) {
	f.cloud.mu.Lock()
	defer f.cloud.mu.Unlock()
	for id := range f.cloud.instances {
		nodes = append(nodes, nodeOf(id))
	}
	return nodes
}

func newBundleFixture(t *testing.T, occupied ...string) *fixture {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")), func(c *Config) {
		c.Occupied = func(node *apiv1.Node) bool { return slices.Contains(occupied, node.Name) }
	})
	f.refresh()
	return f
}

func TestPurchasesForOneGangStayIfAllOfThemAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBundleFixture(t)
		f.buyBundle()
		assert.Len(t, f.events.With("SpotPurchaseRequested"), 2)
		f.cloud.end(f.activityOf("asg-1"), "", f.cloud.launch(4, "asg-1", f.activityOf("asg-1"), a10, "zone-a")...)
		f.loop(f.nodes()...)
		require.Len(t, f.purchases(), 2, "the first may have to be given back")
		f.cloud.end(f.activityOf("asg-2"), "", f.cloud.launch(3, "asg-2", f.activityOf("asg-2"), a10, "zone-a")...)
		for range 3 {
			f.loop(f.nodes()...)
		}
		assert.Empty(t, f.purchases())
		assert.Len(t, f.cloud.instances, 7)
		assert.Equal(t, []int{4, 3}, []int{f.target(a10InA), f.target(otherA10InA)})
	})
}

func TestPurchasesForOneGangAreGivenBackTogether(t *testing.T) {
	for name, fail := range map[string]func(f *fixture){
		"one comes short": func(f *fixture) {
			id := f.activityOf("asg-2")
			f.cloud.end(id, "OperationDenied.NoStock", f.cloud.launch(2, "asg-2", id, a10, "zone-a")...)
			f.cloud.endAs(id, alicloud.ActivityWarning)
		},
		"one is rolled back after all of it was listed": func(f *fixture) {
			id := f.activityOf("asg-2")
			ids := f.cloud.launch(3, "asg-2", id, a10, "zone-a")
			f.cloud.setState(alicloud.LifecyclePending, ids...)
			for range 2 {
				f.loop(f.nodes()...)
			}
			f.cloud.end(id, "OperationDenied.NoStock")
			f.cloud.release(ids...)
		},
		"one fails":               func(f *fixture) { f.cloud.end(f.activityOf("asg-2"), "QuotaExceed.ElasticQuota") },
		"nothing is heard of one": func(*fixture) { time.Sleep(16 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newBundleFixture(t)
				f.buyBundle()
				f.cloud.end(f.activityOf("asg-1"), "", f.cloud.launch(4, "asg-1", f.activityOf("asg-1"), a10, "zone-a")...)
				f.loop(f.nodes()...)
				assert.Empty(t, f.cloud.removeCalls)
				fail(f)
				f.loop(f.nodes()...)
				assert.Zero(t, f.target(a10InA), "nothing may be placed on what will be given back")
				assert.Empty(t, f.failedNodes(a10InA), "the offering is not to blame")
				for range 3 {
					time.Sleep(10 * time.Second)
					f.loop(f.nodes()...)
				}
				assert.Empty(t, f.cloud.instances)
				if failed := f.failedNodes(otherA10InA); len(failed) > 0 {
					require.NoError(t, f.group(otherA10InA).DeleteNodes(failed))
				}
				f.loop()
				assert.Zero(t, f.target(otherA10InA))
			})
		})
	}
}

func TestAnInstanceOfABrokenBundleStaysWherePodsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBundleFixture(t, "i-0002")
		f.buyBundle()
		f.cloud.end(f.activityOf("asg-1"), "", f.cloud.launch(4, "asg-1", f.activityOf("asg-1"), a10, "zone-a")...)
		f.loop(f.nodes()...)
		f.cloud.end(f.activityOf("asg-2"), "OperationDenied.NoStock")
		for range 4 {
			time.Sleep(10 * time.Second)
			f.loop(f.nodes()...)
		}
		assert.Equal(t, []string{"i-0002"}, f.ids())
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestAnInstanceOfABrokenBundleStaysWherePodsComeBeforeItIsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var comes time.Time
		f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")), func(c *Config) {
			c.Occupied = func(node *apiv1.Node) bool { return node.Name == "i-0002" && time.Now().After(comes) }
		})
		f.refresh()
		f.buyBundle()
		f.cloud.end(f.activityOf("asg-1"), "", f.cloud.launch(4, "asg-1", f.activityOf("asg-1"), a10, "zone-a")...)
		comes = time.Now().Add(15 * time.Second)
		f.loop(f.nodes()...)
		f.cloud.end(f.activityOf("asg-2"), "OperationDenied.NoStock")
		f.cloud.busyUntil = time.Now().Add(30 * time.Second)
		for range 9 {
			f.loop(f.nodes()...)
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, []string{"i-0002"}, f.ids())
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestInstancesOfAGangThatCameShortStayWherePodsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBundleFixture(t, "i-0002")
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		id := f.activityOf("asg-1")
		f.cloud.end(id, "OperationDenied.NoStock", f.cloud.launch(3, "asg-1", id, a10, "zone-a")...)
		f.cloud.endAs(id, alicloud.ActivityWarning)
		for range 8 {
			f.loop(f.nodes()...)
			if failed := f.failedNodes(a10InA); len(failed) > 0 {
				require.NoError(t, f.group(a10InA).DeleteNodes(failed))
			}
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, []string{"i-0002"}, f.ids())
		assert.Equal(t, 1, f.target(a10InA))
		assert.Empty(t, f.purchases())
		assert.Len(t, f.events.With("SpotPurchaseRolledBack"), 1)
		assert.Equal(t, 2, f.room(otherA10InA), "the stock has got back two of three")
	})
}

func TestAnInstanceThatGetsPodsAfterALostRequestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hasPods atomic.Bool
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) {
			c.Occupied = func(node *apiv1.Node) bool { return node.Name == "i-0002" && hasPods.Load() }
		})
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		id := f.activityOf("asg-1")
		f.cloud.end(id, "OperationDenied.NoStock", f.cloud.launch(3, "asg-1", id, a10, "zone-a")...)
		f.cloud.endAs(id, alicloud.ActivityWarning)
		f.cloud.removeErrs = []error{errLost}
		f.loop(f.nodes()...)
		time.Sleep(300 * time.Millisecond) // removals are collected for 250
		synctest.Wait()
		require.Len(t, f.cloud.removeCalls, 1)
		hasPods.Store(true) // before the request is repeated
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"i-0002"}, f.ids())
	})
}

func TestAnInstanceOfABrokenBundleIsLookedAtAnewBeforeEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		occupied := false
		f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")), func(c *Config) {
			c.Occupied = func(*apiv1.Node) bool { return occupied }
		})
		f.refresh()
		f.buyBundle()
		f.cloud.end(f.activityOf("asg-1"), "", f.cloud.launch(4, "asg-1", f.activityOf("asg-1"), a10, "zone-a")...)
		f.loop(f.nodes()...)
		f.cloud.end(f.activityOf("asg-2"), "OperationDenied.NoStock")
		f.cloud.removeErrs = []error{errForbidden, errForbidden, errForbidden, errForbidden}
		f.loop(f.nodes()...)
		f.loop(f.nodes()...)
		time.Sleep(10 * time.Second)
		require.Len(t, f.ids(), 4)
		f.cloud.removeErrs, occupied = nil, true
		for range 3 {
			f.loop(f.nodes()...)
			time.Sleep(10 * time.Second)
		}
		assert.Len(t, f.ids(), 4)
	})
}

// ids returns the instances that exist.
func (f *fixture) ids() (ids []string) {
	for _, node := range f.nodes() {
		ids = append(ids, node.Name)
	}
	slices.Sort(ids)
	return ids
}

func TestWhatIsStillInLineIsNotBoughtForABrokenBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBundleFixture(t)
		f.cloud.alone = true
		require.NoError(t, f.group(a10InB).IncreaseSize(1)) // keeps asg-1 busy
		f.provider.Purchases().Bundle(func() bool {
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
			require.NoError(t, f.group(otherA10InA).AtomicIncreaseSize(3))
			return true
		})
		f.cloud.end(f.activityOf("asg-2"), "OperationDenied.NoStock")
		f.loop()
		assert.Zero(t, f.target(a10InA))
		for _, activity := range f.cloud.activities {
			f.cloud.end(activity.ID, "")
		}
		calls := len(f.cloud.scaleCalls)
		time.Sleep(time.Minute)
		f.loop()
		assert.Len(t, f.cloud.scaleCalls, calls)
	})
}

func TestWhatIsOnItsWayWhenItsBundleBreaksIsNotSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		carried bool // out, though there was no answer
	}{
		"the scaling group was busy":       {err: errBusy},
		"a parameter was refused":          {err: errNoParallel},
		"there was no answer":              {err: errLost},
		"there was no answer to a success": {err: errLost, carried: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(
					tagged(spotGroup("asg-1"), api.TagTargeting, "request"), tagged(spotGroup("asg-2"), api.TagTargeting, "request")), occupied())
				f.refresh()
				f.cloud.takes = map[string]time.Duration{"asg-1": time.Second, "asg-2": 2 * time.Second}
				f.cloud.refuses = func(request alicloud.ScaleRequest) error {
					switch {
					case request.ScalingGroupID == "asg-1":
						return errNoStock
					case test.carried:
						return nil
					}
					return test.err
				}
				if test.carried {
					f.cloud.scaleErrs, f.cloud.lost = []error{test.err}, true
				}
				f.buyBundle()
				f.cloud.refuses = nil
				if test.carried {
					id := f.activityOf("asg-2")
					f.cloud.end(id, "", f.cloud.launch(3, "asg-2", id, a10, "zone-a")...)
				}
				for range 30 {
					f.loop(f.nodes()...)
					time.Sleep(10 * time.Second)
				}
				assert.Len(t, f.cloud.scaleCalls, 2)
				assert.Empty(t, f.cloud.instances)
				assert.Zero(t, f.target(otherA10InA))
				assert.Empty(t, f.failedNodes(otherA10InA), "the offering is not to blame")
			})
		})
	}
}

func TestABundleThatIsDroppedBuysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBundleFixture(t)
		f.provider.Purchases().Bundle(func() bool {
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
			assert.Equal(t, 4, f.target(a10InA), "what is planned takes room")
			f.loop()
			assert.Empty(t, f.cloud.scaleCalls, "a refresh sends nothing of it either")
			assert.Empty(t, f.events.With("SpotPurchaseRequested"))
			return false
		})
		assert.Zero(t, f.target(a10InA))
		f.loop()
		assert.Empty(t, f.cloud.scaleCalls)
		assert.Empty(t, f.purchases())
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
		assert.Len(t, f.cloud.scaleCalls, 1, "the next purchase is one of its own")
	})
}

// A former process was killed after it had bought for a gang.
func TestABundleOfAFormerProcessIsGivenBackTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBundleFixture(t)
		f.buyBundle()
		next := newFixture(t, f.cloud, func(c *Config) { c.Occupied = func(*apiv1.Node) bool { return false } })
		f.cloud.end(f.activityOf("asg-1"), "", f.cloud.launch(4, "asg-1", f.activityOf("asg-1"), a10, "zone-a")...)
		next.refresh()
		assert.Equal(t, []int{4, 3}, []int{next.target(a10InA), next.target(otherA10InA)})
		f.cloud.end(f.activityOf("asg-2"), "OperationDenied.NoStock")
		for range 4 {
			time.Sleep(10 * time.Second)
			next.loop(next.nodes()...)
		}
		assert.Empty(t, f.cloud.instances)
	})
}

// buyByRunInstances buys four instances of asg-1 by RunInstances for a gang, and three of asg-2, by RunInstances or of its scaling group.
func buyByRunInstances(t *testing.T, launches bool) *fixture {
	other := spotGroup("asg-2")
	if launches {
		other.Tags[api.TagPurchase] = "run-instances"
	}
	f := launchingFixture(t, newFakeCloud(launchGroup(), other))
	f.provider.Purchases().Bundle(func() bool {
		require.NoError(f, f.group(a10InA).AtomicIncreaseSize(4))
		require.NoError(f, f.group(otherA10InA).AtomicIncreaseSize(3))
		return true
	})
	return f
}

// launchedFor returns the instances that were launched for the pool.
func (f *fixture) launchedFor(poolID string) (ids []string) {
	for id, instance := range f.cloud.launched {
		if instance.Tags[api.TagInstancePool] == poolID {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestABundleOfAFormerProcessThatWasLaunchedIsGivenBackTogether(t *testing.T) {
	for name, isLate := range map[string]bool{"the half that came short is listed": false, "it is listed late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := buyByRunInstances(t, true).cloud
				next := newFixture(t, cloud, occupied())
				delete(cloud.launched, next.launchedFor("asg-2")[0]) // released before it ran
				if isLate {
					cloud.hidden = next.launchedFor("asg-2")
					cloud.unlisted = cloud.hidden
				}
				cloud.start()
				next.loop()
				next.until(10 * time.Second)
				cloud.hidden, cloud.unlisted = nil, nil
				next.until(2 * time.Minute)
				assert.Empty(t, next.launchedFor("asg-1"))
				assert.Empty(t, next.launchedFor("asg-2"))
			})
		})
	}
}

func TestABundleOfAFormerProcessThatWasLaunchedStaysIfAllOfItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := buyByRunInstances(t, true).cloud
		next := newFixture(t, cloud, occupied())
		cloud.start()
		next.loop()
		next.until(2 * time.Minute)
		assert.Len(t, cloud.launched, 7)
		assert.Empty(t, cloud.deleted)
		assert.Empty(t, cloud.removeCalls)
		assert.Empty(t, next.purchases())
	})
}

func TestABundleOfWhichAScalingGroupTakesLongIsGivenBackTogetherAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := buyByRunInstances(t, false)
		f.cloud.start()
		f.until(5 * time.Minute)
		require.Len(t, f.cloud.attached, 4)
		next := newFixture(t, f.cloud, occupied())
		next.loop()
		next.until(time.Minute)
		assert.Equal(t, []int{4, 3}, []int{next.target(a10InA), next.target(otherA10InA)})
		f.cloud.end(f.activityOf("asg-2"), "OperationDenied.NoStock")
		next.until(time.Minute)
		assert.Zero(t, next.target(a10InA))
		assert.ElementsMatch(t, f.cloud.attached, removed(f.cloud))
	})
}
