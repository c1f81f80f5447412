package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestPurchaseCountsBeforeItIsAnsweredAndUntilItsInstancesCome(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).IncreaseSize(3))
	assert.Equal(t, 3, f.target(a10InA))
	assert.Equal(t, 10, f.group(a10InA).MaxSize())
	assert.Equal(t, 7, f.group(a10InB).MaxSize(), "offerings of a pool share its room")
	assert.Equal(t, 3, f.provider.Undelivered(a10InB), "and its scaling group")
	asked := f.cloud.scaleCalls[0]
	assert.Equal(t, []any{a10, []string{"vsw-a"}, alicloud.SpotAsPriceGo}, []any{asked.InstanceType, asked.VSwitchIDs, asked.SpotStrategy})

	came := f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")
	f.refresh()
	assert.Equal(t, 3, f.target(a10InA), "two are there, one is awaited")
	assert.Equal(t, 1, f.provider.Undelivered(a10InA))
	came = append(came, f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
	f.cloud.end("asa-0", "", came...)
	f.refresh()
	assert.Equal(t, 3, f.target(a10InA))
	assert.Empty(t, f.purchases())
	require.ErrorContains(t, f.group(a10InB).IncreaseSize(8), "room for 7")
}

func TestPurchaseWithoutAnAnswerIsSentAgainUnderItsToken(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		lost  bool
		calls int
	}{
		"the cloud was busy with another activity":                     {err: errBusy, calls: 3},
		"the request was lost, and the activities show nothing of it":  {err: errLost, calls: 3},
		"the reply was lost after the work, which the activities show": {err: errLost, lost: true, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
			f.refresh()
			f.cloud.scaleErrs, f.cloud.lost = []error{test.err, test.err}, test.lost
			require.NoError(t, f.group(a10InA).IncreaseSize(2))
			f.refresh()
			f.refresh()
			assert.Equal(t, 2, f.target(a10InA))
			require.Len(t, f.cloud.scaleCalls, test.calls)
			assert.Equal(t, f.cloud.scaleCalls[0], f.cloud.scaleCalls[test.calls-1])
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
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.refresh()
				f.cloud.scaleErrs, f.cloud.lost = test.errs, test.lost
				require.NoError(t, f.group(a10InA).IncreaseSize(2))
				for range 3 {
					f.refresh()
					time.Sleep(time.Minute)
				}
				assert.Len(t, f.failedNodes(a10InA), test.failed)
				assert.Equal(t, 2, f.target(a10InA))
				if test.lost {
					f.cloud.end("asa-0", "", f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")...)
					f.refresh()
					assert.Equal(t, 2, f.target(a10InA))
					assert.Empty(t, f.purchases())
				}
			})
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
			assert.Len(t, f.events.With("SpotPurchaseFailed"), 1)

			require.NoError(t, f.group(a10InA).DeleteNodes(failed))
			assert.Equal(t, test.come, f.target(a10InA))
			f.refresh()
			assert.Empty(t, f.purchases())
			assert.Empty(t, f.cloud.removeCalls)
		})
	}
}

func TestPurchaseWithoutEndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		time.Sleep(16 * time.Minute) // of the fake clock
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
		assert.Empty(t, f.purchases())
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
		assert.Zero(t, f.target(a10InA), "nothing may be placed on what will be given back")
		time.Sleep(time.Minute)
		f.refresh()
		assert.Empty(t, f.cloud.instances)
		f.refresh()
		assert.Empty(t, f.purchases())
	})
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
