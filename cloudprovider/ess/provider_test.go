package ess

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	a10InA = "asg-1/" + a10 + "/zone-a/spot"
	a10InB = "asg-1/" + a10 + "/zone-b/spot"
)

var (
	errBusy     = &alicloud.Error{Code: "ScalingActivityInProgress", Class: alicloud.Conflict}
	errLost     = &alicloud.Error{Code: alicloud.CodeTimeout, Class: alicloud.Unavailable, Uncertain: true}
	errRefused  = &alicloud.Error{Code: "Forbidden.Unauthorized", Class: alicloud.Unauthorized}
	errNoAnswer = errors.New("no answer")
	// errUncertainRefusal is what the client makes of an attempt without an answer and a refused one after it.
	errUncertainRefusal = &alicloud.Error{Code: "Forbidden.Unauthorized", Class: alicloud.Unauthorized, Uncertain: true}
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
	assert.Empty(t, f.events.about("SpotPoolProblem"))
}

func TestPurchaseCountsBeforeItIsAnsweredAndUntilItsInstancesCome(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	assert.Equal(t, 3, f.target(a10InA))
	assert.Equal(t, 10, f.group(a10InA).MaxSize())
	assert.Equal(t, 7, f.group(a10InB).MaxSize(), "offerings of a pool share its room")
	asked := f.cloud.scaleCalls[0]
	assert.Equal(t, []any{a10, []string{"vsw-a"}, alicloud.SpotAsPriceGo}, []any{asked.InstanceType, asked.VSwitchIDs, asked.SpotStrategy})

	came := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	f.refresh()
	assert.Equal(t, 3, f.target(a10InA), "two are there, one is awaited")
	came = append(came, f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
	f.cloud.end("asa-0", "", came...)
	f.refresh()
	assert.Equal(t, 3, f.target(a10InA))
	assert.Empty(t, f.provider.purchases)
	require.ErrorContains(t, f.group(a10InB).IncreaseSize(8), "room for 7")
}

func TestPurchaseWithoutAnAnswerIsSentAgainUnderItsToken(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		lost bool
	}{
		"the cloud was busy with another activity": {err: errBusy},
		"the reply was lost after the work":        {err: errLost, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.refresh()
			f.cloud.scaleErrs, f.cloud.lost = []error{test.err, test.err}, test.lost
			require.NoError(t, f.group(a10InA).IncreaseSize(2))
			f.refresh()
			f.refresh()
			assert.Equal(t, 2, f.target(a10InA))
			require.Len(t, f.cloud.scaleCalls, 3)
			assert.Equal(t, f.cloud.scaleCalls[0], f.cloud.scaleCalls[2])
			assert.Len(t, f.cloud.activities, 1, "bought once")
		})
	}
}

func TestRefusalAfterALostReplyIsNotBelievedBeforeTheActivitiesAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		lost   bool // the first attempt was carried out
		errs   []error
		failed int
	}{
		"the lost attempt bought":                {lost: true, errs: []error{errLost, errRefused}},
		"the lost attempt did not":               {errs: []error{errLost, errRefused}, failed: 2},
		"both within one call, and it bought":    {lost: true, errs: []error{errUncertainRefusal}},
		"both within one call, and it did not":   {errs: []error{errUncertainRefusal}, failed: 2},
		"a plain refusal needs no second look":   {errs: []error{errRefused}, failed: 2},
		"lost twice, then bought under its name": {lost: true, errs: []error{errLost, errLost}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.refresh()
			f.cloud.scaleErrs, f.cloud.lost = test.errs, test.lost
			require.NoError(t, f.group(a10InA).IncreaseSize(2))
			f.refresh()
			f.refresh()
			f.refresh()
			assert.Len(t, f.failedNodes(a10InA), test.failed)
			assert.Equal(t, 2, f.target(a10InA))
			if test.lost {
				f.cloud.end("asa-0", "", f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")...)
				f.refresh()
				assert.Equal(t, 2, f.target(a10InA))
				assert.Empty(t, f.provider.purchases)
			}
		})
	}
}

func TestFailedPurchaseIsSeenByCoreUntilAcknowledged(t *testing.T) {
	for name, test := range map[string]struct {
		refusal error  // the reply to the request
		code    string // the end of the activity
		come    int
		failed  int
		class   cloudprovider.InstanceErrorClass
	}{
		"stock is out":         {code: "OperationDenied.NoStock", failed: 3, class: cloudprovider.OutOfResourcesErrorClass},
		"partial fill":         {code: "OperationDenied.NoStock", come: 1, failed: 2, class: cloudprovider.OutOfResourcesErrorClass},
		"price limit too low":  {code: "InvalidSpotPriceLimit.LowerThanPublicPrice", failed: 3, class: cloudprovider.OutOfResourcesErrorClass},
		"request is refused":   {refusal: errRefused, failed: 3, class: cloudprovider.OtherErrorClass},
		"refused, not typed":   {refusal: errNoAnswer, failed: 3, class: cloudprovider.OtherErrorClass},
		"clamped by the group": {come: 2, failed: 1, class: cloudprovider.OtherErrorClass},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.refresh()
			if test.refusal != nil {
				f.cloud.scaleErrs = []error{test.refusal}
			}
			require.NoError(t, f.group(a10InA).IncreaseSize(3))
			if test.refusal == nil {
				f.cloud.end("asa-0", test.code, f.cloud.launch(test.come, "asg-1", "asa-0", a10, "zone-a")...)
				f.refresh()
			}
			assert.Equal(t, 3, f.target(a10InA), "core lowers the target itself, after it has backed off")
			failed := f.failedNodes(a10InA)
			require.Len(t, failed, test.failed)
			instances, _ := f.group(a10InA).Nodes()
			for _, instance := range instances {
				if instance.Status.ErrorInfo != nil {
					assert.Equal(t, cloudprovider.InstanceCreating, instance.Status.State)
					assert.Equal(t, test.class, instance.Status.ErrorInfo.ErrorClass)
				}
			}
			group, err := f.provider.NodeGroupForNode(failed[0])
			require.NoError(t, err)
			assert.Equal(t, a10InA, group.Id())
			assert.Len(t, f.events.about("SpotPurchaseFailed"), 1)

			require.NoError(t, f.group(a10InA).DeleteNodes(failed))
			assert.Equal(t, test.come, f.target(a10InA))
			f.refresh()
			assert.Empty(t, f.provider.purchases)
			assert.Empty(t, f.cloud.removeCalls)
		})
	}
}

func TestInstanceThatCameAndWentIsNoFailure(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	came := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	f.cloud.end("asa-0", "", came...)
	delete(f.cloud.instances, came[0])
	f.refresh()
	assert.Equal(t, 1, f.target(a10InA))
	assert.Empty(t, f.failedNodes(a10InA))
}

func TestPurchaseWithoutEndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		time.Sleep(16 * time.Minute) // of the bubble's clock
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 1)
	})
}

func TestGangWhoseActivityDragsOnIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		f.cloud.launch(4, "asg-1", "asa-0", a10, "zone-a")
		time.Sleep(16 * time.Minute)
		f.refresh()
		time.Sleep(time.Minute)
		f.refresh()
		assert.Len(t, f.cloud.instances, 4)
		assert.Empty(t, f.failedNodes(a10InA))
	})
}

func TestWhatComesLateOfAGangThatWasGivenUpIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
		time.Sleep(16 * time.Minute)
		f.refresh()
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		f.refresh()
		f.cloud.end("asa-0", "", f.cloud.launch(4, "asg-1", "asa-0", a10, "zone-a")...)
		f.refresh()
		assert.Zero(t, f.target(a10InA))
		time.Sleep(time.Minute)
		f.refresh()
		f.refresh()
		assert.Empty(t, f.cloud.instances)
		assert.Empty(t, f.provider.purchases)
	})
}

func TestPoolMayBeMorePatientThanTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := spotGroup("asg-1")
		group.Tags["k8s.io/cluster-autoscaler/node-template/autoscaling-options/maxnodeprovisiontime"] = "30m"
		f := newFixture(t, newFakeCloud(group))
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		time.Sleep(29 * time.Minute)
		f.refresh()
		assert.Empty(t, f.failedNodes(a10InA))
		time.Sleep(2 * time.Minute)
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 1)
	})
}

func TestOrderOutlivesTheOfferingThatItWasFor(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	group := f.cloud.groups["asg-1"]
	group.VSwitchIDs = []string{"vsw-b"}
	f.cloud.groups["asg-1"] = group
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA))
	assert.Equal(t, 2, f.group(a10InA).MaxSize(), "no more of it is bought")
	f.cloud.end("asa-0", "OperationDenied.NoStock")
	f.refresh()
	require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
	f.refresh()
	assert.NotContains(t, f.groupIDs(), a10InA)
}

func TestAtomicPurchaseThatComesShortIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(8))
		f.cloud.end("asa-0", "OperationDenied.NoStock", f.cloud.launch(5, "asg-1", "asa-0", a10, "zone-a")...)
		f.cloud.removeErrs = []error{errBusy}
		f.refresh()
		failed := f.failedNodes(a10InA)
		assert.Len(t, failed, 8)
		require.NoError(t, f.group(a10InA).DeleteNodes(failed))
		assert.Zero(t, f.target(a10InA), "nothing may be placed on what will be given back")
		time.Sleep(time.Minute)
		f.refresh()
		assert.Empty(t, f.cloud.instances)
		f.refresh()
		assert.Empty(t, f.provider.purchases)
	})
}

func TestNewProcessTakesUpWhatTheOldOneBought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		old.refresh()
		require.NoError(t, old.group(a10InA).IncreaseSize(2))
		require.NoError(t, old.group(a10InB).AtomicIncreaseSize(4))
		old.cloud.end("asa-1", "OperationDenied.NoStock", old.cloud.launch(1, "asg-1", "asa-1", a10, "zone-b")...)

		f := newFixture(t, old.cloud)
		f.refresh()
		assert.Equal(t, 2, f.target(a10InA), "still under way")
		time.Sleep(time.Second)
		f.refresh()
		assert.Empty(t, f.cloud.instances, "the broken gang is given back")
		assert.Zero(t, f.target(a10InB))
		assert.Len(t, f.cloud.scaleCalls, 2)
	})
}

func TestPoolThatIgnoresTargetingBecomesOneNodeGroup(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", v100, "zone-b")...)
	f.refresh()
	assert.Equal(t, []string{"asg-1/any/any/spot"}, f.groupIDs())
	assert.Equal(t, 1, f.target("asg-1/any/any/spot"))
	assert.Len(t, f.events.about("SpotPoolNotTargetable"), 1)
	group, err := f.provider.NodeGroupForNode(nodeOf("i-0001"))
	require.NoError(t, err)
	assert.Equal(t, "asg-1/any/any/spot", group.Id())

	require.NoError(t, group.IncreaseSize(1))
	assert.Empty(t, f.cloud.scaleCalls[1].InstanceType, "a whole pool is not targeted")

	template, err := group.TemplateNodeInfo()
	require.NoError(t, err)
	model, _ := f.provider.Pricing()
	price, err := model.NodePrice(template.Node(), time.Time{}, time.Time{}.Add(time.Hour))
	require.NoError(t, err)
	assert.InDelta(t, 5, price, 0.001, "priced as the dearest")

	again := newFixture(t, f.cloud)
	again.refresh()
	again.refresh()
	assert.Equal(t, []string{"asg-1/any/any/spot"}, again.groupIDs(), "the next process finds it in the activities")
}

func TestPayAsYouGoThatCameForSpotIsTold(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(1))
	ids := f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")
	instance := f.cloud.instances[ids[0]]
	instance.SpotStrategy = alicloud.NoSpot
	f.cloud.instances[ids[0]] = instance
	f.cloud.end("asa-0", "", ids...)
	f.refresh()
	f.refresh()
	assert.Len(t, f.events.about("SpotCompensatedWithOnDemand"), 1)
	onDemand := "asg-1/" + a10 + "/zone-a/on-demand"
	assert.Equal(t, 1, f.target(onDemand), "the node follows the instance")
	assert.Equal(t, 1, f.group(onDemand).MaxSize(), "and no more of it is bought")
}

func TestRemovalsAreGatheredIntoBatches(t *testing.T) {
	for name, test := range map[string]struct {
		takes           time.Duration
		desiredCapacity *int
		calls           int
		within          time.Duration
	}{
		"a removal is soon over":                             {takes: 2 * time.Second, calls: 5, within: 13 * time.Second},
		"what keeps the pool busy is learned once":           {takes: 40 * time.Second, calls: 14, within: 4 * time.Minute},
		"a pool with desired capacity takes several at once": {desiredCapacity: ptr.To(100), calls: 5, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				group := spotGroup("asg-1")
				group.MaxSize, group.DesiredCapacity = 200, test.desiredCapacity
				f := newFixture(t, newFakeCloud(group))
				f.cloud.removalTakes = test.takes
				ids := f.cloud.launch(100, "asg-1", "", a10, "zone-a")
				f.refresh()
				began := time.Now()
				done := make(chan error)
				for _, id := range ids {
					go func() { done <- f.group(a10InA).DeleteNodes(nodesOf(id)) }()
				}
				for range ids {
					require.NoError(t, <-done)
				}
				assert.LessOrEqual(t, len(f.cloud.removeCalls), test.calls)
				assert.Less(t, time.Since(began), test.within)
				assert.Empty(t, f.cloud.instances)
				assert.Zero(t, f.target(a10InA))
			})
		})
	}
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

func TestDoomedInstancesAreNoCapacity(t *testing.T) {
	doomed := sets.New[string]()
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) { c.Doomed = func() sets.Set[string] { return doomed } })
	ids := f.cloud.launch(3, "asg-1", "", a10, "zone-a")
	f.refresh()
	doomed.Insert(ids[0])
	assert.Equal(t, 3, f.target(a10InA), "frozen until the next loop")
	marked := nodeOf(ids[1])
	marked.Labels = map[string]string{ReclaimingLabel: "true"}
	f.provider.BeginLoop([]*apiv1.Node{nodeOf(ids[0]), marked, nodeOf(ids[2])})
	f.refresh()
	assert.Equal(t, 1, f.target(a10InA))
	assert.Equal(t, 1+7, f.group(a10InA).MaxSize(), "the scaling group's maximum of 10 counts the doomed too")
	assert.True(t, f.provider.IsDoomed(marked))
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
	said := f.events.about("SpotNodeUnrecognized")
	require.Len(t, said, 2)
	assert.Contains(t, said[0], "aws:///us-east-1a/i-0abc")
	group, err := f.provider.NodeGroupForNode(foreign)
	require.NoError(t, err)
	assert.Nil(t, group)
}

func TestInstanceMissingFromAShiftingPageIsNotTakenForGone(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	ids := f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	f.cloud.hidden = ids[:1]
	f.refresh()
	assert.Equal(t, 2, f.target(a10InA))
}

func TestDecreaseTargetSizeCancelsOnlyWhatHasNotCome(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.launch(2, "asg-1", "", a10, "zone-a")
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	require.NoError(t, f.group(a10InA).DecreaseTargetSize(-1))
	assert.Equal(t, 4, f.target(a10InA))
	require.NoError(t, f.group(a10InA).DecreaseTargetSize(-9))
	assert.Equal(t, 2, f.target(a10InA))
	require.Error(t, f.group(a10InA).DecreaseTargetSize(1))
	assert.Empty(t, f.cloud.removeCalls)
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
			said := f.events.about("SpotPoolProblem")
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
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.cloud.listErr = errLost
	require.Error(t, f.provider.Refresh(), "nothing is known yet")
	f.cloud.listErr = nil
	f.refresh()
	f.cloud.listErr = errLost
	f.refresh()
	assert.Len(t, f.groupIDs(), 4)
	assert.Len(t, f.events.about("SpotRefreshFailed"), 1)
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
	said := f.events.about("SpotPoolProblem")
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "mistyped")
}

func TestHazardsOfAScalingGroupAreTold(t *testing.T) {
	group := spotGroup("asg-1")
	group.CompensateWithOnDemand, group.SpotInstanceRemedy, group.DesiredCapacity = true, true, new(int)
	f := newFixture(t, newFakeCloud(group))
	f.refresh()
	f.refresh()
	assert.Len(t, f.events.about("SpotPoolProblem"), 3)
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
	assert.Contains(t, f.events.about("SpotPoolProblem")[0], "asg-gone")

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

func TestNodesAreReleasedAtOnceWithinTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := spotGroup("asg-1")
		group.Tags["gpu-spot.autoscaling/min-size"] = "1"
		f := newFixture(t, newFakeCloud(group))
		ids := f.cloud.launch(4, "asg-1", "", a10, "zone-a")
		f.refresh()
		f.provider.Doomed = func() sets.Set[string] { return sets.New(ids[3]) }
		f.provider.BeginLoop(nodesOf(ids...))
		assert.False(t, f.provider.Releasable(nodeOf(ids[3])), "it is being reclaimed")
		assert.False(t, f.provider.Releasable(nodeOf("i-foreign")))
		assert.Error(t, f.provider.Release(nodeOf("i-foreign")))
		require.True(t, f.provider.Releasable(nodeOf(ids[0])))

		errs := make(chan error, 3)
		for _, node := range nodesOf(ids[:3]...) {
			go func() { errs <- f.provider.Release(node) }()
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
		assert.False(t, f.provider.Releasable(nodeOf(ids[0])), "it is on its way out")
	})
}
