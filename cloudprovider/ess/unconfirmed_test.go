package ess

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestUncertainPurchaseIsNotSentAgainWhereTheActivitiesCannotBeRead(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	f.cloud.scaleErrs, f.cloud.lost, f.cloud.activitiesErr = []error{errLost}, true, errLost
	require.NoError(t, f.group(a10InA).IncreaseSize(2))
	for range 3 {
		f.refresh()
	}
	assert.Len(t, f.cloud.scaleCalls, 1)
	assert.Equal(t, 2, f.target(a10InA))
	f.cloud.activitiesErr = nil
	f.refresh()
	assert.Len(t, f.cloud.scaleCalls, 1, "it is found")
	assert.Equal(t, 2, f.target(a10InA))
}

func TestAGatheredPurchaseThatARefreshHasSentIsNotSentAgainWithoutALookAtTheActivities(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	f.provider.Purchases().Gather(func(send func()) {
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		f.cloud.scaleErrs, f.cloud.lost = []error{errLost}, true
		f.refresh() // as the client of package externalgrpc has it refreshed beside
		send()
	})
	assert.Len(t, f.cloud.scaleCalls, 1)
	f.refresh()
	assert.Len(t, f.cloud.scaleCalls, 1, "it is found")
	assert.Equal(t, 2, f.target(a10InA))
}

func TestUncertainPurchaseWhoseNoteIsLostIsFoundByItsTimeAndCount(t *testing.T) {
	for name, test := range map[string]struct {
		edit  func(*alicloud.Activity)
		found bool
	}{
		"it began then, and adds as many": {func(*alicloud.Activity) {}, true},
		"it began before":                 {func(a *alicloud.Activity) { a.Started = a.Started.Add(-2 * time.Minute) }, false},
		"it began long after":             {func(a *alicloud.Activity) { a.Started = a.Started.Add(5 * time.Minute) }, false},
		"it adds another number":          {func(a *alicloud.Activity) { a.Adding = 3 }, false},
		"it is told to the minute":        {func(a *alicloud.Activity) { a.Started = a.Started.Truncate(time.Minute) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(40 * time.Second) // into a minute
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.refresh()
				f.cloud.scaleErrs, f.cloud.lost = []error{errLost}, true
				require.NoError(t, f.group(a10InA).IncreaseSize(2))
				f.cloud.dropNotes()
				f.cloud.change("asa-0", test.edit)
				f.refresh()
				calls := map[bool]int{true: 1, false: 2}[test.found]
				assert.Len(t, f.cloud.scaleCalls, calls, "what was found is not sent again")
				assert.Equal(t, 2, f.target(a10InA))
			})
		})
	}
}

func TestTwoUncertainPurchasesAreNotTakenForOneActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		f.cloud.scaleErrs, f.cloud.lost = []error{errLost}, true
		require.NoError(t, f.group(a10InA).IncreaseSize(2))
		f.cloud.scaleErrs, f.cloud.lost = []error{errLost}, false
		require.NoError(t, f.group(a10InB).IncreaseSize(2))
		f.cloud.dropNotes()
		for range 3 { // both resemble the activity: the cloud names the activity of the one that is sent again
			f.refresh()
			assert.Equal(t, []int{2, 2}, []int{f.target(a10InA), f.target(a10InB)})
		}
		assert.Len(t, f.cloud.activities, 2, "one was carried out, the other is bought now")
		f.cloud.end("asa-0", "", f.cloud.launch(2, "asg-1", "asa-0", a10, "zone-a")...)
		f.cloud.end("asa-1", "", f.cloud.launch(2, "asg-1", "asa-1", a10, "zone-b")...)
		f.refresh()
		assert.Equal(t, []int{2, 2}, []int{f.target(a10InA), f.target(a10InB)})
		assert.Empty(t, f.purchases())
	})
}

// The first purchase of a pool is split for the check. Its rest is released if something else shows what the pool delivers, and
// may be bought before the cloud answers with a plan of the first part.
func TestAnUncertainRestIsNotBoughtAgainWithThePurchaseThatItWasSplitFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		former.refresh()
		require.NoError(t, former.group(a10InA).IncreaseSize(1)) // asa-0

		f := newFixture(t, former.cloud)
		f.refresh()
		f.cloud.plans = func(alicloud.ScaleRequest) (alicloud.Plan, error) { return alicloud.Plan{}, errThrottled }
		require.NoError(t, f.group(a10InA).IncreaseSize(5))
		require.Equal(t, []int{1}, f.cloud.accepted(), "4 wait for the plan of 1")
		f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-a")...)
		time.Sleep(time.Second)
		f.refresh()
		f.cloud.scaleErrs, f.cloud.lost = []error{errLost}, true
		time.Sleep(time.Second)
		f.refresh()
		require.Equal(t, []int{1, 4}, f.cloud.accepted(), "what asa-0 brought has released the 4")

		f.cloud.plans, f.cloud.lost, f.cloud.activitiesErr = nil, false, errThrottled
		time.Sleep(time.Second)
		f.refresh()
		assert.Equal(t, []int{1, 4, 1}, f.cloud.accepted())
		assert.Equal(t, 1+5, f.target(a10InA))
	})
}

func TestNoUncertainPurchaseIsSentAfterTenMinutes(t *testing.T) {
	for name, test := range map[string]struct {
		bought bool // the first attempt was carried out, and its activity is listed late
		target int
	}{
		"the activities decide that it was carried out":     {bought: true, target: 2},
		"the activities decide that it was not carried out": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
				f.refresh()
				f.cloud.scaleErrs = slices.Repeat([]error{errLost}, 1000)
				require.NoError(t, f.group(a10InA).IncreaseSize(2))
				request := f.cloud.scaleCalls[0]
				f.cloud.activitiesErr = errLost // the cloud does not answer
				f.refresh()
				time.Sleep(10*time.Minute + time.Second)
				f.cloud.scaleErrs, f.cloud.activitiesErr = nil, nil
				if test.bought {
					f.cloud.activities["asa-late"] = alicloud.Activity{ID: "asa-late", ScalingGroupID: "asg-1", Status: alicloud.ActivityInProgress, Metadata: request.Metadata}
				}
				calls := len(f.cloud.scaleCalls)
				for range 5 {
					f.refresh()
					time.Sleep(time.Minute)
				}
				assert.Len(t, f.cloud.scaleCalls, calls, "its token may be forgotten by now: it would buy twice")
				assert.Equal(t, test.target, f.target(a10InA))
				assert.Empty(t, f.failedNodes(a10InA))
			})
		})
	}
}
