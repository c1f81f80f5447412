package alisim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

func TestTheListMayLagBehindActivitiesThatHaveEnded(t *testing.T) {
	const lag = 7 * time.Second
	s := startUnder(t, func(r *temper.Rules) { r.ListLags = true }, func(w *alisim.World) { w.ListLag = metav1.Duration{Duration: lag} })
	a := s.buy(spotGroup, 4)
	assert.Equal(t, "Successful", a.StatusCode)
	assert.Equal(t, 4, a.CreatedCapacity)
	assert.Equal(t, 4, s.group(spotGroup).ActiveCapacity, "the group itself does not lag")
	assert.Len(t, s.machines(nil), 4, "nor does ECS")
	assert.Len(t, s.members(spotGroup), 2)
	assert.Equal(t, 2, s.memberPage(1).TotalSpotCount)
	s.pass(lag - time.Second)
	assert.Len(t, s.members(spotGroup), 2)
	s.pass(time.Second)
	require.Len(t, s.members(spotGroup), 4)

	gone := ids(s.members(spotGroup))[:2]
	resp, err := s.removeInstances(spotGroup, gone)
	require.NoError(t, err)
	s.settle()
	assert.Equal(t, "Successful", s.activity(resp.ScalingActivityId).StatusCode)
	assert.Len(t, s.machines(nil), 2)
	require.Len(t, s.members(spotGroup), 4)
	assert.Equal(t, "Removing", s.members(spotGroup)[0].LifecycleState)
	s.pass(lag)
	assert.Len(t, s.members(spotGroup), 2)
}

func TestAnInstanceThatGoesBeforeItWasListedNeverIs(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.ListLags, r.RollBack = true, temper.RollBackAll })
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultPartialFill, Count: 2, Times: 1}))
	s.buy(spotGroup, 3)
	s.pass(time.Minute)
	assert.Empty(t, s.members(spotGroup))
}

func TestNewcomersMayBeListedBare(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.BareNewcomers = true })
	_, err := s.scale(spotGroup, 1)
	require.NoError(t, err)
	s.pass(activityDelay / 2)
	i := s.members(spotGroup)[0]
	assert.Equal(t, []string{"Pending", "", "", ""}, []string{i.LifecycleState, i.InstanceType, i.ZoneId, i.SpotStrategy})
	assert.NotEmpty(t, i.ScalingActivityId)
	s.settle()
	i = s.members(spotGroup)[0]
	assert.Equal(t, []string{"InService", small, zoneA, alisim.SpotAsPriceGo}, []string{i.LifecycleState, i.InstanceType, i.ZoneId, i.SpotStrategy})
}

func ignoreInvalid(r *ess.RemoveInstancesRequest) {
	r.IgnoreInvalidInstance = requests.NewBoolean(true)
}

func stopWithin(seconds string) func(*ess.RemoveInstancesRequest) {
	return func(r *ess.RemoveInstancesRequest) { r.QueryParams["StopInstanceTimeout"] = seconds }
}

func TestPendingInstancesCannotBeRemoved(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.PendingStay, r.WarnOfInvalid = true, true })
	s.buy(spotGroup, 1)
	_, err := s.scale(spotGroup, 1, parallel)
	require.NoError(t, err)
	s.pass(activityDelay / 2)
	members := s.members(spotGroup)
	require.Equal(t, "Pending", members[1].LifecycleState)
	_, err = s.removeInstances(spotGroup, ids(members))
	assert.Equal(t, "IncorrectInstanceStatus", codeOf(t, err))
	_, err = s.removeInstances(spotGroup, ids(members[1:]), ignoreInvalid)
	assert.Equal(t, "IncorrectInstanceStatus", codeOf(t, err), "although told to ignore it, as nothing else remains")
	s.settle()
	_, err = s.removeInstances(spotGroup, ids(members))
	assert.NoError(t, err)
}

func TestARemovalWarnsOfWhatItLeftOut(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.WarnOfInvalid = true })
	s.buy(spotGroup, 1)
	resp, err := s.removeInstances(spotGroup, append(ids(s.members(spotGroup)), "i-x"), ignoreInvalid)
	require.NoError(t, err)
	s.settle()
	a := s.activity(resp.ScalingActivityId)
	assert.Equal(t, "Warning", a.StatusCode)
	assert.Contains(t, a.Detail, "i-x")
	assert.Equal(t, 1, a.DestroyedCapacity)
	assert.Empty(t, s.members(spotGroup))
}

func TestAnInstanceThatDoesNotStop(t *testing.T) {
	awaitStop := func(r *temper.Rules) { r.AwaitStop = true }
	for _, test := range []struct {
		name   string
		rules  func(*temper.Rules)
		change []func(*ess.RemoveInstancesRequest)
		waits  time.Duration
		status string
		left   int
	}{
		{name: "goes all the same where nobody waits", rules: func(*temper.Rules) {}, status: "Successful"},
		{name: "rolls the whole scale-in back", rules: awaitStop, status: "Failed", left: 3},
		{name: "goes when its time is over", rules: awaitStop, change: []func(*ess.RemoveInstancesRequest){stopWithin("60")}, waits: time.Second, status: "Successful"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startUnder(t, test.rules) // at speed 60
			s.buy(spotGroup, 3)
			all := ids(s.members(spotGroup))
			require.NoError(t, s.Hang(all[1]))
			resp, err := s.removeInstances(spotGroup, all, test.change...)
			require.NoError(t, err)
			s.pass(activityDelay + test.waits - time.Millisecond)
			assert.Equal(t, "InProgress", s.activity(resp.ScalingActivityId).StatusCode)
			s.pass(time.Millisecond)
			assert.Equal(t, test.status, s.activity(resp.ScalingActivityId).StatusCode)
			require.Len(t, s.members(spotGroup), test.left)
			for _, i := range s.members(spotGroup) {
				assert.Equal(t, "InService", i.LifecycleState)
			}
		})
	}
	s := start(t)
	s.buy(spotGroup, 1)
	for _, seconds := range []string{"29", "241"} {
		_, err := s.removeInstances(spotGroup, ids(s.members(spotGroup)), stopWithin(seconds))
		assert.Equal(t, "InvalidParameter", codeOf(t, err))
	}
}

func TestAnInstanceThatCannotBeReleasedStays(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 2)
	all := ids(s.members(spotGroup))
	require.NoError(t, s.Stay(all[0]))
	resp, err := s.removeInstances(spotGroup, all)
	require.NoError(t, err)
	s.settle()
	a := s.activity(resp.ScalingActivityId)
	assert.Equal(t, "Warning", a.StatusCode)
	assert.Equal(t, all[:1], failedInstances(a))
	assert.Equal(t, all[1:], a.DestroyedInstances.DestroyedInstance)
	require.Len(t, s.members(spotGroup), 1)
	assert.Equal(t, "InService", s.members(spotGroup)[0].LifecycleState)

	require.NoError(t, s.Stay(all[0]))
	resp, err = s.removeInstances(spotGroup, all[:1])
	require.NoError(t, err)
	s.settle()
	assert.Equal(t, "Failed", s.activity(resp.ScalingActivityId).StatusCode)
	_, err = s.removeInstances(spotGroup, all[:1])
	require.NoError(t, err)
	s.settle()
	assert.Empty(t, s.members(spotGroup), "the next try")
}

func TestSomeRemovalsResistByThemselves(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.AwaitStop, r.HangOneIn, r.StayOneIn = true, 4, 4 })
	s.buy(spotGroup, 5)
	var got []string
	for _, id := range ids(s.members(spotGroup)) {
		resp, err := s.removeInstances(spotGroup, []string{id})
		require.NoError(t, err)
		s.settle()
		a := s.activity(resp.ScalingActivityId)
		got = append(got, a.StatusCode+" "+a.ErrorCode)
	}
	assert.Equal(t, []string{
		"Successful ", "Failed OperationFailed.InstanceNotReleased", "Successful ", "Failed OperationFailed.InstanceNotStopped", "Successful ",
	}, got)
	_, err := s.removeInstances(spotGroup, ids(s.members(spotGroup)), stopWithin("30"))
	require.NoError(t, err)
	s.pass(activityDelay + time.Second)
	assert.Empty(t, s.members(spotGroup), "none resists twice")
}

func TestRecyclingMayBeShownAsStopped(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.RecyclingIsStopped = true })
	s.buy(spotGroup, 2)
	id := ids(s.members(spotGroup))[0]
	require.NoError(t, s.Reclaim(id))
	locked := s.machines(recycling)
	require.Len(t, locked, 1)
	assert.Equal(t, "Stopped", locked[0].Status)
	assert.Len(t, s.machines(func(r *ecs.DescribeInstancesRequest) { r.Status = "Running" }), 1)
	s.pass(10 * healthCheckDelay)
	assert.Len(t, s.members(spotGroup), 2, "it runs on, whatever is shown")
}

func TestTheFilterForLocksKnowsOneSpelling(t *testing.T) {
	locked := func(reason string) func(*ecs.DescribeInstancesRequest) {
		return func(r *ecs.DescribeInstancesRequest) { r.LockReason = reason }
	}
	for _, test := range []struct {
		spelling string
		found    map[string]int
		shown    string
	}{
		{"", map[string]int{"Recycling": 1, "recycling": 1, "financial": 0}, "Recycling"},
		{"recycling", map[string]int{"Recycling": 0, "recycling": 1, "RECYCLING": 0}, "recycling"},
		{"Recycling", map[string]int{"Recycling": 1, "recycling": 0}, "Recycling"},
	} {
		t.Run("it is "+test.spelling, func(t *testing.T) {
			s := startUnder(t, func(r *temper.Rules) { r.LockReason = test.spelling })
			s.buy(spotGroup, 2)
			require.NoError(t, s.Reclaim(ids(s.members(spotGroup))[0]))
			for reason, count := range test.found {
				assert.Len(t, s.machines(locked(reason)), count, reason)
			}
			assert.Equal(t, test.shown, s.machines(nil)[0].OperationLocks.LockReason[0].LockReason)
		})
	}
}

func TestProtectedStandbyAndStoppedInstancesAreKept(t *testing.T) {
	for _, state := range []string{"Protected", "Standby", "Stopped"} {
		t.Run(state, func(t *testing.T) {
			s := start(t)
			s.buy(spotGroup, 3)
			kept := ids(s.members(spotGroup))[0]
			require.NoError(t, s.SetLifecycle(kept, state))
			assert.Equal(t, state, s.members(spotGroup)[0].LifecycleState)
			g := s.group(spotGroup)
			assert.Equal(t, []int{2, 3, 1}, []int{g.ActiveCapacity, g.TotalCapacity, g.ProtectedCapacity + g.StandbyCapacity + g.StoppedCapacity})
			status := map[bool]string{true: "Stopped", false: "Running"}[state == "Stopped"]
			assert.Equal(t, status, s.machines(nil)[0].Status)

			s.buy(spotGroup, -3)
			assert.Equal(t, []string{kept}, ids(s.members(spotGroup)), "a scale-in by number passes it over")
			require.NoError(t, s.StopInstance(kept))
			s.pass(10 * healthCheckDelay)
			assert.Len(t, s.members(spotGroup), 1, "so does the health check")
			require.NoError(t, s.SetLifecycle(kept, "InService"))
			require.NoError(t, s.SetLifecycle(kept, state))
			_, err := s.removeInstances(spotGroup, []string{kept})
			require.NoError(t, err)
			s.settle()
			assert.Empty(t, s.members(spotGroup), "who names it has it removed")
		})
	}
}

func TestLifecycleStatesAreSteeredOverHTTP(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 1)
	id := ids(s.members(spotGroup))[0]
	assert.Equal(t, 204, s.post("/_sim/lifecycle", `{"instanceId": "`+id+`", "state": "Standby"}`).status)
	assert.Equal(t, "Standby", s.members(spotGroup)[0].LifecycleState)
	for _, body := range []string{`{"instanceId": "i-x", "state": "Standby"}`, `{"instanceId": "` + id + `", "state": "Removing"}`} {
		assert.Equal(t, 400, s.post("/_sim/lifecycle", body).status)
	}
	for _, path := range []string{"/_sim/hang", "/_sim/stay"} {
		assert.Equal(t, 204, s.post(path, `{"instanceId": "`+id+`"}`).status)
		assert.Equal(t, 400, s.post(path, `{"instanceId": "i-x"}`).status)
	}
}

func TestAStrictWorldTakesItsRealTime(t *testing.T) {
	w := testWorld()
	w.Temper, w.Speed, w.ActivityDelay = temper.Strict(), 10, metav1.Duration{}
	s := startWorld(t, w, alisim.Options{})
	var took []time.Duration
	for range 8 {
		resp, err := s.scale(spotGroup, 1)
		require.NoError(t, err)
		began := s.clock.Now()
		for s.activity(resp.ScalingActivityId).StatusCode == "InProgress" {
			s.pass(50 * time.Millisecond)
		}
		took = append(took, s.clock.Since(began))
	}
	assert.GreaterOrEqual(t, slices.Min(took), 2*time.Second)
	assert.LessOrEqual(t, slices.Max(took), 6*time.Second+50*time.Millisecond)
	assert.NotEqual(t, slices.Min(took), slices.Max(took))
}

func TestInstancesThatAWorldBeginsWithAreUpAtOnce(t *testing.T) {
	c := newCluster()
	w := testWorld()
	w.BootDelay, w.DriverDelay, w.Pools[0].Instances = metav1.Duration{Duration: time.Hour}, metav1.Duration{Duration: time.Hour}, 2
	s := startWorld(t, w, alisim.Options{Nodes: c})
	s.pass(time.Millisecond)
	s.eventually(func() bool { return len(c.machines()) == 2 })
	assert.Zero(t, c.machines()[0].DriverDelay)
	assert.True(t, strings.HasPrefix(c.machines()[0].InstanceID, "i-"))
}
