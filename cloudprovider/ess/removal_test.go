package ess

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestRemovalsAreGatheredIntoBatches(t *testing.T) {
	for name, test := range map[string]struct {
		takes           time.Duration
		busyFor         time.Duration // with something else, from the start
		desiredCapacity *int
		calls           int
		within          time.Duration
	}{
		"a removal is over before the next loop":             {takes: 2 * time.Second, calls: 5, within: 45 * time.Second},
		"a removal takes several loops":                      {takes: 35 * time.Second, calls: 5, within: 200 * time.Second},
		"the pool is busy with something else":               {takes: 2 * time.Second, busyFor: 8 * time.Second, calls: 10, within: time.Minute},
		"a pool with desired capacity takes several at once": {takes: 35 * time.Second, desiredCapacity: ptr.To(100), calls: 5, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				group := spotGroup("asg-1")
				group.MaxSize, group.DesiredCapacity = 200, test.desiredCapacity
				f := newFixture(t, newFakeCloud(group))
				f.cloud.removalTakes, f.cloud.busyUntil = test.takes, time.Now().Add(test.busyFor)
				ids := f.cloud.launch(100, "asg-1", "", a10, "zone-a")
				nodes := nodesOf(ids...)
				f.loop(nodes...)
				looping := time.NewTicker(10 * time.Second)
				defer looping.Stop()
				began := time.Now()
				done := make(chan error)
				for _, id := range ids {
					go func() { done <- f.group(a10InA).DeleteNodes(nodesOf(id)) }()
				}
				for left := len(ids); left > 0; {
					select {
					case err := <-done:
						require.NoError(t, err)
						left--
					case <-looping.C:
						f.loop(nodes...)
					}
				}
				assert.LessOrEqual(t, len(f.cloud.removeCalls), test.calls)
				assert.Less(t, time.Since(began), test.within)
				time.Sleep(test.takes + time.Second)
				f.loop(nodes...)
				assert.Empty(t, f.cloud.instances)
				assert.Zero(t, f.target(a10InA))
			})
		})
	}
}

func TestRemovalThatIsNeverSeenIsNotWaitedForForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.cloud.removing = true
		ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
		f.refresh()
		require.Empty(t, f.giveBack(ids[0]))
		f.cloud.mu.Lock()
		clear(f.cloud.activities) // nobody can read it
		f.cloud.mu.Unlock()
		f.refresh()
		began := time.Now()
		require.Empty(t, f.giveBack(ids[1]))
		assert.LessOrEqual(t, time.Since(began), 32*time.Second)
	})
}

func TestPoolIsNeverTakenBelowItsMinimum(t *testing.T) {
	for name, test := range map[string]struct {
		force   bool
		removed int
	}{
		"scale-down leaves the minimum": {removed: 2},
		"force does not":                {force: true, removed: 5},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			group.MinSize = 3
			f := newFixture(t, newFakeCloud(group))
			ids := f.cloud.launch(5, "asg-1", "", a10, "zone-a")
			f.refresh()
			remove := f.group(a10InA).DeleteNodes
			if test.force {
				remove = f.group(a10InA).ForceDeleteNodes
			}
			err := remove(nodesOf(ids...))
			assert.Equal(t, !test.force, errors.Is(err, ErrBelowMinimum))
			assert.Len(t, f.cloud.instances, 5-test.removed)
			f.refresh()
			assert.Equal(t, 5-test.removed, f.target(a10InA))
		})
	}
}

func TestMinimumIsNeverBelowTheScalingGroups(t *testing.T) {
	group := spotGroup("asg-1")
	group.MinSize, group.Tags["gpu-spot.autoscaling/min-size"] = 2, "0"
	f := newFixture(t, newFakeCloud(group))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	status, _ := f.provider.PoolOf(nodeOf(ids[0]))
	assert.Equal(t, 2, status.MinSize)
	assert.Equal(t, 2, status.Size, "what is on order keeps no pool above its minimum")
}

func TestInstancesThatNeverRegisteredHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
		f.refresh()
		f.cloud.removeErrs = []error{errBusy, errBusy, errBusy}
		node := nodeOf(ids[0])
		node.Annotations = map[string]string{cloudprovider.FakeNodeReasonAnnotation: cloudprovider.FakeNodeUnregistered}
		before := time.Now()
		require.NoError(t, f.group(a10InA).DeleteNodes([]*apiv1.Node{node}))
		assert.Zero(t, time.Since(before))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, f.cloud.instances)
	})
}

func TestRefusedRemovalIsNamedAndTheInstanceCountsAgain(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	f.cloud.removeErrs = []error{errRefused}
	err := f.group(a10InA).DeleteNodes(append(nodesOf(ids...), nodeOf("i-foreign")))
	require.ErrorIs(t, err, errRefused)
	for _, named := range append(ids, "i-foreign") {
		assert.ErrorContains(t, err, named)
	}
	assert.Equal(t, 2, f.target(a10InA))
}

func TestNodesAreGivenBackAtOnceWithinTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := spotGroup("asg-1")
		group.Tags["gpu-spot.autoscaling/min-size"] = "1"
		f := newFixture(t, newFakeCloud(group))
		ids := f.cloud.launch(4, "asg-1", "", a10, "zone-a")
		f.refresh()
		f.reclaiming.Insert(ids[3])
		f.provider.BeginLoop(nodesOf(ids...))
		assert.False(t, f.provider.MayGiveBack(nodeOf(ids[3])), "it is being reclaimed")
		assert.False(t, f.provider.MayGiveBack(nodeOf("i-foreign")))
		assert.Error(t, f.provider.GiveBack(nodeOf("i-foreign")))
		require.True(t, f.provider.MayGiveBack(nodeOf(ids[0])))

		errs := make(chan error, 3)
		for _, node := range nodesOf(ids[:3]...) {
			go func() { errs <- f.provider.GiveBack(node) }()
		}
		var refused []error
		for range 3 {
			if err := <-errs; err != nil {
				refused = append(refused, err)
			}
		}
		require.Len(t, refused, 1)
		assert.ErrorIs(t, refused[0], ErrBelowMinimum)
		require.Len(t, f.cloud.removeCalls, 1, "together")
		assert.Len(t, f.cloud.removeCalls[0].InstanceIDs, 2)
		assert.False(t, f.provider.MayGiveBack(nodeOf(ids[0])), "it is on its way out")
	})
}

// whileBuilding returns a change of a Config, after which the next refresh calls the function that do points to, once, after it
// has entered what it read and while it builds the pools.
func whileBuilding(do *func()) func(*Config) {
	return func(c *Config) {
		c.Overrides = func(string) map[string]string {
			if call := *do; call != nil {
				*do = nil
				call()
			}
			return nil
		}
	}
}

func TestARemovalOrderedDuringARefreshCountsTheInstancesThatItFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := spotGroup("asg-1")
		group.Tags["gpu-spot.autoscaling/min-size"] = "2"
		var meanwhile func()
		f := newFixture(t, newFakeCloud(group), whileBuilding(&meanwhile))
		ids := f.cloud.launch(4, "asg-1", "", a10, "zone-a")
		f.loop(nodesOf(ids...)...)
		f.cloud.release(ids[:2]...)
		offered := f.group(a10InA)
		var err error
		meanwhile = func() { err = offered.DeleteNodes(nodesOf(ids[2:]...)) }
		f.refresh()
		require.ErrorIs(t, err, ErrBelowMinimum)
		assert.Len(t, f.cloud.instances, 2)
	})
}

func TestARemovalOrderedDuringTheRefreshThatFindsItFailedIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var meanwhile func()
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")), whileBuilding(&meanwhile))
		f.cloud.removing = true
		node := nodeOf(f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0])
		f.loop(node)
		offered := f.group(a10InA)
		require.NoError(t, offered.DeleteNodes([]*apiv1.Node{node}))
		f.cloud.setState(alicloud.LifecycleInService, node.Name)
		f.cloud.endAs("asa-remove-1", alicloud.ActivityFailed)
		var err error
		meanwhile = func() { err = offered.DeleteNodes([]*apiv1.Node{node}) }
		f.refresh()
		require.NoError(t, err)
		assert.Len(t, f.cloud.removeCalls, 2)
	})
}
