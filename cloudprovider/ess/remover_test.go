package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

var (
	errProtected = &alicloud.Error{Code: "InvalidParameter.Protected", Class: alicloud.Invalid}
	errPending   = &alicloud.Error{Code: "IncorrectInstanceStatus.Initializing", Class: alicloud.Conflict}
)

// giveBack deletes the nodes at the same time, each with a call of its own as core does, and waits for the answers.
func (f *fixture) giveBack(ids ...string) (errs []error) {
	answers := make(chan error, len(ids))
	for _, id := range ids {
		go func() { answers <- f.group(a10InA).DeleteNodes(nodesOf(id)) }()
	}
	for range ids {
		if err := <-answers; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func TestOneInstanceThatCannotGoDoesNotKeepTheOthers(t *testing.T) {
	for name, test := range map[string]struct {
		refusal func(id string) error
		calls   int
	}{
		"the refusal does not say which": {func(string) error { return errProtected }, 11},
		"the refusal names it": {func(id string) error {
			return &alicloud.Error{Code: "InvalidParameter", Message: "The instance " + id + " is protected.", Class: alicloud.Invalid}
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				group := spotGroup("asg-1")
				group.MaxSize = 40
				f := newFixture(t, newFakeCloud(group))
				ids := f.cloud.launch(20, "asg-1", "", a10, "zone-a")
				f.cloud.unremovable = map[string]error{ids[7]: test.refusal(ids[7])}
				f.refresh()
				errs := f.giveBack(ids...)
				require.Len(t, errs, 1)
				assert.ErrorContains(t, errs[0], ids[7])
				assert.Len(t, f.cloud.instances, 1)
				assert.LessOrEqual(t, len(f.cloud.removeCalls), test.calls)
				f.loop()
				assert.Equal(t, 1, f.target(a10InA), "what stays counts again")
			})
		})
	}
}

func TestRefusalThatConcernsAllIsNotAskedForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		ids := f.cloud.launch(8, "asg-1", "", a10, "zone-a")
		f.refresh()
		f.cloud.removeErrs = []error{errRefused}
		assert.Len(t, f.giveBack(ids...), 8)
		assert.Len(t, f.cloud.removeCalls, 1)
	})
}

func TestInstanceThatIsStillStartingIsRemovedOnceItHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		ids := f.cloud.launch(4, "asg-1", "", a10, "zone-a")
		f.cloud.setState(alicloud.LifecyclePending, ids[0])
		f.cloud.unremovable = map[string]error{ids[0]: errPending}
		f.refresh()
		errs := make(chan []error)
		go func() { errs <- f.giveBack(ids...) }()
		for range 3 {
			time.Sleep(10 * time.Second)
			f.refresh()
		}
		assert.Len(t, f.cloud.instances, 1, "the others have gone meanwhile")
		f.cloud.mu.Lock()
		f.cloud.unremovable = nil
		f.cloud.mu.Unlock()
		assert.Empty(t, <-errs)
		assert.Empty(t, f.cloud.instances)
	})
}

func TestInstanceThatNeverStartsIsGivenUpAndCountsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
		f.cloud.unremovable = map[string]error{ids[0]: errPending}
		f.refresh()
		errs := f.giveBack(ids...)
		require.Len(t, errs, 1)
		assert.ErrorIs(t, errs[0], errPending)
		f.loop(nodesOf(ids...)...)
		assert.Equal(t, 1, f.target(a10InA))
	})
}

func TestRemovalDoesNotWaitForAnInstanceThatDoesNotStop(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
	f.refresh()
	require.Empty(t, f.giveBack(ids...))
	assert.Equal(t, 30*time.Second, f.cloud.removeCalls[0].StopTimeout)
}

func TestTheRequestThatIsUnderWayAtTheEndIsWaitedForButNotForLong(t *testing.T) {
	for answerTakes, isAnswered := range map[time.Duration]bool{3 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
			f.refresh()
			f.cloud.answerTakes = answerTakes
			removed := make(chan []error, 1)
			go func() { removed <- f.giveBack(ids...) }()
			time.Sleep(2 * time.Second)
			ended := time.Now()
			require.NoError(t, f.provider.Cleanup())
			assert.LessOrEqual(t, time.Since(ended), 5*time.Second)
			if errs := <-removed; isAnswered {
				assert.Empty(t, errs)
			} else {
				assert.Len(t, errs, 1)
			}
		})
	}
}

func TestRemovalThatDidNotRemove(t *testing.T) {
	for name, test := range map[string]struct {
		end     string
		state   string        // of the instance that still exists
		stays   time.Duration // how long it does not count after the end
		counts  int           // after that
		message string
	}{
		"ended as Warning":                      {alicloud.ActivityWarning, alicloud.LifecycleInService, 50 * time.Second, 1, "Warning"},
		"ended well, and the instance is there": {alicloud.ActivitySuccessful, alicloud.LifecycleInService, 50 * time.Second, 1, "Successful"},
		"rolled back":                           {alicloud.ActivityFailed, alicloud.LifecycleInService, 0, 1, "Failed"},
		"never ends":                            {alicloud.ActivityInProgress, alicloud.LifecycleInService, 14 * time.Minute, 1, "has not ended"},
		"never ends, and ESS goes on removing":  {alicloud.ActivityInProgress, alicloud.LifecycleRemoving, 14 * time.Minute, 0, "has not ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.cloud.removing = true
				ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
				nodes := nodesOf(ids...)
				f.loop(nodes...)
				require.Empty(t, f.giveBack(ids...))
				f.loop(nodes...)
				require.Zero(t, f.target(a10InA))

				f.cloud.release(ids[0])
				f.cloud.setState(test.state, ids[1])
				f.cloud.endAs("asa-remove-1", test.end)
				f.loop(nodes...)
				if test.stays > 0 {
					time.Sleep(test.stays)
					f.loop(nodes...)
					require.Zero(t, f.target(a10InA), "the listing may be behind")
					require.Empty(t, f.events.With("SpotRemovalFailed"))
					time.Sleep(2 * time.Minute)
					f.loop(nodes...)
				}
				said := f.events.With("SpotRemovalFailed")
				require.Len(t, said, 1)
				assert.Contains(t, said[0], ids[1])
				assert.Contains(t, said[0], test.message)
				f.loop(nodes...)
				assert.Equal(t, test.counts, f.target(a10InA))
				assert.Equal(t, test.counts == 0, f.provider.OutOfService(nodes[1]))
				assert.Len(t, f.events.With("SpotRemovalFailed"), 1, "once")
			})
		})
	}
}

func TestNothingIsRemovedThatIsNotInThePool(t *testing.T) {
	for name, test := range map[string]struct {
		node func(own, foreign string) *apiv1.Node
	}{
		"an instance of nobody's":            {func(string, string) *apiv1.Node { return nodeOf("i-unknown") }},
		"an instance of a group not managed": {func(_, foreign string) *apiv1.Node { return nodeOf(foreign) }},
		"a Node of another region": {func(own, _ string) *apiv1.Node {
			return &apiv1.Node{Spec: apiv1.NodeSpec{ProviderID: "cn-elsewhere." + own}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			foreign := spotGroup("asg-foreign")
			foreign.Tags = nil
			f := newFixture(t, newFakeCloud(spotGroup("asg-1"), foreign))
			own := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
			theirs := f.cloud.launch(1, "asg-foreign", "", a10, "zone-a")[0]
			f.refresh()
			node := test.node(own, theirs)
			require.Error(t, f.group(a10InA).DeleteNodes([]*apiv1.Node{node}))
			require.Error(t, f.group(a10InA).ForceDeleteNodes([]*apiv1.Node{node}))
			require.ErrorIs(t, f.provider.GiveBack(node), ErrNoPool)
			assert.False(t, f.provider.MayGiveBack(node))
			assert.Empty(t, f.cloud.removeCalls)
		})
	}
}

func TestInstanceThatMovedToAnotherPoolIsNotRemovedFromThis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")))
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		came := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
		moved := f.cloud.instances[came[1]]
		moved.ScalingGroupID = "asg-2"
		f.cloud.instances[came[1]] = moved
		f.cloud.end("asa-0", "OperationDenied.NoStock", came...)
		f.refresh()
		time.Sleep(time.Minute)
		f.refresh()
		require.Len(t, f.cloud.removeCalls, 1)
		assert.Equal(t, came[:1], f.cloud.removeCalls[0].InstanceIDs)
	})
}

func TestInstanceThatTwoNodesSayToBeIsNotGivenBack(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	id := f.cloud.launch(1, "asg-1", "", a10, "zone-a")[0]
	busy, impostor := nodeOf(id), nodeOf(id)
	busy.Name, impostor.Name = "busy", "impostor"
	f.loop(busy, impostor)
	f.loop(busy, impostor)
	assert.False(t, f.provider.MayGiveBack(impostor))
	require.ErrorIs(t, f.group(a10InA).DeleteNodes([]*apiv1.Node{impostor}), ErrDisputed)
	require.ErrorIs(t, f.group(a10InA).ForceDeleteNodes([]*apiv1.Node{impostor}), ErrDisputed)
	assert.Empty(t, f.cloud.removeCalls)
	said := f.events.With("SpotNodeDisputed")
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "busy, impostor")

	f.loop(busy)
	assert.True(t, f.provider.MayGiveBack(busy))
}

func TestEveryRemovalThatTheCloudAcceptsIsPassedOn(t *testing.T) {
	var removed []string
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) {
		c.Removed = func(ids []string) { removed = append(removed, ids...) }
	})
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.cloud.unremovable = map[string]error{ids[0]: errProtected}
	f.refresh()
	assert.Len(t, f.giveBack(ids...), 1)
	assert.Equal(t, ids[1:], removed)
}
