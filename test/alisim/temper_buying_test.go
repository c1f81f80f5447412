package alisim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// startUnder starts a lenient world in which some rules hold.
func startUnder(t testing.TB, rules func(*temper.Rules), change ...func(*alisim.World)) *sim {
	t.Helper()
	return start(t, append(change, func(w *alisim.World) {
		w.Temper = temper.Lenient()
		rules(&w.Temper)
	})...)
}

// query adds a parameter that the SDK does not know.
func query(name, value string) func(*ess.ScaleWithAdjustmentRequest) {
	return func(r *ess.ScaleWithAdjustmentRequest) { r.QueryParams[name] = value }
}

func TestWhatAnActivityCreatedIsRolledBackWhereItComesShort(t *testing.T) {
	for _, test := range []struct {
		name   string
		extent temper.RollBack
		fault  *alisim.Fault
		stock  int
		status string
		stay   int
	}{
		{name: "never by default", stock: 3, status: "Warning", stay: 3},
		{name: "half of them", extent: temper.RollBackSome, stock: 3, status: "Warning", stay: 1},
		{name: "the only one", extent: temper.RollBackSome, stock: 1, status: "Failed", stay: 0},
		{name: "all of them", extent: temper.RollBackAll, stock: 3, status: "Failed", stay: 0},
		{name: "none of an activity that does not come short", extent: temper.RollBackAll, stock: 9, status: "Successful", stay: 5},
		{name: "some of any activity where a fault says so", fault: &alisim.Fault{Kind: alisim.FaultRollBack, Count: 2, Times: 1}, stock: 9, status: "Warning", stay: 3},
		{name: "all of any activity where a fault says so", fault: &alisim.Fault{Kind: alisim.FaultRollBack, Count: 9, Times: 1}, stock: 9, status: "Failed", stay: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startUnder(t, func(r *temper.Rules) { r.RollBack = test.extent })
			s.SetStock(small, zoneA, test.stock)
			if test.fault != nil {
				require.NoError(t, s.Fault(*test.fault))
			}
			resp, err := s.scale(spotGroup, 5, target(small, vswA, alisim.SpotAsPriceGo))
			require.NoError(t, err)
			s.pass(activityDelay / 2)
			came := s.members(spotGroup)
			require.Len(t, came, min(5, test.stock), "they were listed")
			s.pass(activityDelay / 2)

			a := s.activity(resp.ScalingActivityId)
			assert.Equal(t, test.status, a.StatusCode)
			stayed := ids(s.members(spotGroup))
			assert.Len(t, stayed, test.stay)
			assert.ElementsMatch(t, stayed, a.CreatedInstances.CreatedInstance)
			gone := failedInstances(a)
			assert.ElementsMatch(t, ids(came), append(stayed, gone...), "the activity names those that went")
			for _, id := range gone {
				_, exists := s.Instance(id)
				assert.False(t, exists)
			}
			view, _ := s.Group(spotGroup)
			assert.ElementsMatch(t, gone, view.Activities[0].RolledBack)
		})
	}
}

// failedInstances are those that the activity's messages name.
func failedInstances(a ess.ScalingActivity) (ids []string) {
	for _, m := range a.ErrorMessages.ErrorMessagesItem {
		ids = append(ids, m.FailedInstanceIds.FailedInstanceIds...)
	}
	return ids
}

func TestRolledBackInstancesMayStayNamedAsCreated(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.RollBack, r.RolledBackStayNamed = temper.RollBackAll, true })
	s.SetStock(small, zoneA, 2)
	a := s.buy(spotGroup, 3, target(small, vswA, alisim.SpotAsPriceGo))
	assert.Equal(t, "Failed", a.StatusCode)
	assert.Equal(t, 2, a.CreatedCapacity)
	assert.ElementsMatch(t, failedInstances(a), a.CreatedInstances.CreatedInstance)
	assert.Empty(t, s.members(spotGroup))
}

func TestCodesMayStandInTextAlone(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.CodesInText = true })
	s.SetStock(small, zoneA, 0)
	s.SetStock(medium, zoneA, 0)
	a := s.buy(spotGroup, 1, func(r *ess.ScaleWithAdjustmentRequest) { r.VSwitchId = &[]string{vswA} })
	assert.Equal(t, []string{"Failed", "-", "", ""}, []string{a.StatusCode, a.StatusMessage, a.ErrorCode, a.ErrorMessage})
	assert.Equal(t, 2, strings.Count(a.Detail, `Fail to create Instances into scaling group(code:"OperationDenied.NoStock", msg:"`), a.Detail)
	assert.Empty(t, a.ErrorMessages.ErrorMessagesItem)

	a = s.buy(spotGroup, 1)
	assert.Equal(t, []string{"Successful", "-", ""}, []string{a.StatusCode, a.StatusMessage, a.ErrorCode})
	assert.NotContains(t, a.Detail, "code:")
}

func TestActivitiesMayBeListedOldestFirst(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.OldestFirst = true })
	first, second := s.buy(spotGroup, 1), s.buy(spotGroup, 1)
	r := ess.CreateDescribeScalingActivitiesRequest()
	r.ScalingGroupId, r.PageSize = spotGroup, requests.NewInteger(1)
	resp, err := s.ess.DescribeScalingActivities(r)
	require.NoError(t, err)
	assert.Equal(t, first.ScalingActivityId, resp.ScalingActivities.ScalingActivity[0].ScalingActivityId)
	r.PageNumber = requests.NewInteger(2)
	resp, err = s.ess.DescribeScalingActivities(r)
	require.NoError(t, err)
	assert.Equal(t, second.ScalingActivityId, resp.ScalingActivities.ScalingActivity[0].ScalingActivityId)
}

func TestOneActivityAtATime(t *testing.T) {
	oneAtATime := func(r *temper.Rules) { r.OneAtATime = true }
	busy := func(t *testing.T, s *sim) {
		t.Helper()
		_, err := s.scale(spotGroup, 1, parallel)
		assert.Equal(t, "ScalingActivityInProgress", codeOf(t, err))
		_, err = s.scale(onDemandGroup, 1, parallel)
		assert.NoError(t, err, "another group is not concerned")
	}
	t.Run("beside a purchase", func(t *testing.T) {
		s := startUnder(t, oneAtATime)
		_, err := s.scale(spotGroup, 1, parallel)
		require.NoError(t, err)
		busy(t, s)
	})
	t.Run("beside a purchase of a group with a desired capacity", func(t *testing.T) {
		s := startUnder(t, oneAtATime, func(w *alisim.World) { w.Pools[0].DesiredCapacity = ptr.To(0) })
		_, err := s.scale(spotGroup, 1, parallel)
		require.NoError(t, err)
		busy(t, s)
	})
	t.Run("beside a scale-in", func(t *testing.T) {
		s := startUnder(t, oneAtATime)
		s.buy(spotGroup, 1)
		_, err := s.removeInstances(spotGroup, ids(s.members(spotGroup)))
		require.NoError(t, err)
		busy(t, s)
	})
	t.Run("beside a removal by the health check", func(t *testing.T) {
		s := startUnder(t, oneAtATime)
		s.buy(spotGroup, 1)
		require.NoError(t, s.StopInstance(ids(s.members(spotGroup))[0]))
		s.pass(healthCheckDelay)
		assert.Equal(t, "Removing", s.members(spotGroup)[0].LifecycleState)
		busy(t, s)
		s.settle()
		assert.Empty(t, s.members(spotGroup))
		_, err := s.scale(spotGroup, 1)
		assert.NoError(t, err)
	})
	t.Run("the health check waits too", func(t *testing.T) {
		s := startUnder(t, oneAtATime, func(w *alisim.World) { w.ActivityDelay = metav1.Duration{Duration: 10 * healthCheckDelay} })
		_, err := s.scale(spotGroup, 1)
		require.NoError(t, err)
		s.pass(10 * healthCheckDelay)
		victim := ids(s.members(spotGroup))[0]
		_, err = s.scale(spotGroup, 1)
		require.NoError(t, err)
		require.NoError(t, s.StopInstance(victim))
		s.pass(9 * healthCheckDelay)
		assert.Contains(t, ids(s.members(spotGroup)), victim)
		s.pass(12 * healthCheckDelay)
		assert.NotContains(t, ids(s.members(spotGroup)), victim)
	})
	t.Run("ESS's own replacements wait too", func(t *testing.T) {
		s := startUnder(t, oneAtATime, func(w *alisim.World) { w.Pools[0].SpotInstanceRemedy = true })
		s.buy(spotGroup, 1)
		_, err := s.scale(spotGroup, 1)
		require.NoError(t, err)
		require.NoError(t, s.Reclaim(ids(s.members(spotGroup))[0]))
		view, _ := s.Group(spotGroup)
		assert.Len(t, view.Activities, 2)
		s.settle()
		view, _ = s.Group(spotGroup)
		require.Len(t, view.Activities, 3)
		assert.Equal(t, "InProgress", view.Activities[0].Status)
	})
}

func TestNotesAreNotSafe(t *testing.T) {
	note := func(text string) func(*ess.ScaleWithAdjustmentRequest) {
		return func(r *ess.ScaleWithAdjustmentRequest) { r.ActivityMetadata = text }
	}
	s := startUnder(t, func(r *temper.Rules) { r.LoseNoteOf, r.NotesHoldStrings = 3, true })
	assert.JSONEq(t, `{"type":"a"}`, s.buy(spotGroup, 1, note(`{"type":"a","count":3,"gang":{"of":2}}`)).ActivityMetadata)
	assert.Empty(t, s.buy(spotGroup, 1, note(`no object`)).ActivityMetadata)
	assert.Empty(t, s.buy(spotGroup, 1, note(`{"type":"a"}`)).ActivityMetadata, "one in three is lost")
	assert.JSONEq(t, `{"type":"a"}`, s.buy(spotGroup, 1, note(`{"type":"a"}`)).ActivityMetadata)
}

func TestTokensMayBeForgottenWithinMinutes(t *testing.T) {
	const life = 3 * time.Minute
	s := startUnder(t, func(r *temper.Rules) { r.ForgetTokens = true }, func(w *alisim.World) { w.TokenLife = metav1.Duration{Duration: life} })
	first, err := s.scale(spotGroup, 1, token("t1"))
	require.NoError(t, err)
	s.pass(life)
	again, err := s.scale(spotGroup, 1, token("t1"))
	require.NoError(t, err)
	assert.Equal(t, first.ScalingActivityId, again.ScalingActivityId)
	s.pass(time.Second)
	other, err := s.scale(spotGroup, 1, token("t1"))
	require.NoError(t, err)
	assert.NotEqual(t, first.ScalingActivityId, other.ScalingActivityId)
	s.settle()
	assert.Len(t, s.members(spotGroup), 2, "bought twice")
}

func TestATokenMayHaveToWaitForItsOwnActivity(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.SlotBeforeToken = true })
	first, err := s.scale(spotGroup, 1, token("t1"))
	require.NoError(t, err)
	_, err = s.scale(spotGroup, 1, token("t1"))
	assert.Equal(t, "ScalingActivityInProgress", codeOf(t, err))
	s.settle()
	again, err := s.scale(spotGroup, 1, token("t1"))
	require.NoError(t, err)
	assert.Equal(t, first.ScalingActivityId, again.ScalingActivityId)

	named := func(r *ess.RemoveInstancesRequest) { r.ClientToken = "t2" }
	_, err = s.removeInstances(spotGroup, ids(s.members(spotGroup)), named)
	require.NoError(t, err)
	_, err = s.removeInstances(spotGroup, ids(s.members(spotGroup)), named)
	assert.Equal(t, "ScalingActivityInProgress", codeOf(t, err))
}

func TestAnAdjustmentThatChangesNothingIsRefused(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.RefuseNoChange = true }, func(w *alisim.World) { w.Pools[0].MaxSize, w.Pools[0].Instances = 5, 3 })
	assert.Equal(t, 2, s.buy(spotGroup, 9).CreatedCapacity, "one that goes beyond the maximum ends at it")
	status, body := s.raw("POST", s.signed("POST", versionESS, "ScaleWithAdjustment", set("ScalingGroupId", spotGroup),
		set("AdjustmentType", "QuantityChangeInCapacity"), set("AdjustmentValue", "1")), false)
	assert.Equal(t, 400, status)
	assert.Equal(t, "IncorrectCapacity.NoChange", body["Code"])
	view, _ := s.Group(spotGroup)
	assert.Len(t, view.Activities, 2, "no activity came of it")
}

func TestAdjustingAGroupWithADesiredCapacityChangesTheExpectation(t *testing.T) {
	expectation := func(r *temper.Rules) { r.Expectation = true }
	desired := func(w *alisim.World) { w.Pools[0].DesiredCapacity, w.Pools[0].Instances = ptr.To(2), 2 }
	sync := query("SyncActivity", "true")
	const follow = healthCheckDelay + activityDelay

	t.Run("and the group follows by and by", func(t *testing.T) {
		s := startUnder(t, expectation, desired)
		s.pass(healthCheckDelay)
		resp, err := s.scale(spotGroup, 3, target(medium, vswC, alisim.NoSpot))
		require.NoError(t, err)
		assert.Equal(t, []string{"CapacityChange", ""}, []string{resp.ActivityType, resp.ScalingActivityId})
		assert.Equal(t, 5, s.group(spotGroup).DesiredCapacity)
		assert.Len(t, s.members(spotGroup), 2)
		s.pass(follow)
		assert.Len(t, s.members(spotGroup), 5)
		assert.NotContains(t, fill(s.members(spotGroup)), offering(medium, zoneC, alisim.NoSpot), "nobody remembers what was asked for")
	})
	t.Run("an activity begins at once where the request says so", func(t *testing.T) {
		s := startUnder(t, expectation, desired)
		resp, err := s.scale(spotGroup, 3, sync, target(medium, vswC, alisim.NoSpot))
		require.NoError(t, err)
		assert.Empty(t, resp.ActivityType)
		s.settle()
		assert.Equal(t, 3, s.activity(resp.ScalingActivityId).CreatedCapacity)
		assert.Equal(t, 3, fill(s.members(spotGroup))[offering(medium, zoneC, alisim.NoSpot)])
	})
	t.Run("a second adjustment overwrites what is not stable yet", func(t *testing.T) {
		s := startUnder(t, expectation, desired)
		_, err := s.scale(spotGroup, 3, sync)
		require.NoError(t, err)
		_, err = s.scale(spotGroup, 1)
		require.NoError(t, err)
		assert.Equal(t, 3, s.group(spotGroup).DesiredCapacity, "two stable ones and one")
		s.pass(2 * follow)
		assert.Len(t, s.members(spotGroup), 3)
	})
	t.Run("a second adjustment adds to what is stable", func(t *testing.T) {
		s := startUnder(t, expectation, desired)
		for range 2 {
			_, err := s.scale(spotGroup, 2)
			require.NoError(t, err)
			s.pass(follow)
		}
		assert.Len(t, s.members(spotGroup), 6)
	})
	t.Run("no other group is concerned", func(t *testing.T) {
		s := startUnder(t, expectation)
		resp, err := s.scale(spotGroup, 1)
		require.NoError(t, err)
		assert.NotEmpty(t, resp.ScalingActivityId)
	})
}
