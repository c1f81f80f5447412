package alisim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
)

func TestScalingIsAsynchronous(t *testing.T) {
	s := start(t)
	resp, err := s.scale(spotGroup, 3, func(r *ess.ScaleWithAdjustmentRequest) { r.ActivityMetadata = `{"who":"me"}` })
	require.NoError(t, err)

	a := s.activity(resp.ScalingActivityId)
	assert.Equal(t, "InProgress", a.StatusCode)
	assert.Equal(t, `{"who":"me"}`, a.ActivityMetadata)
	assert.Empty(t, s.members(spotGroup))
	assert.Equal(t, 3, s.group(spotGroup).InitCapacity, "what is under way counts for whoever adds the capacities up")

	s.pass(activityDelay / 2)
	assert.Equal(t, "InProgress", s.activity(resp.ScalingActivityId).StatusCode)
	require.Len(t, s.members(spotGroup), 3)
	for _, i := range s.members(spotGroup) {
		assert.Equal(t, "Pending", i.LifecycleState)
	}
	assert.Equal(t, 3, s.group(spotGroup).PendingCapacity)

	s.pass(activityDelay / 2)
	a = s.activity(resp.ScalingActivityId)
	assert.Equal(t, "Successful", a.StatusCode)
	assert.Equal(t, 100, a.Progress)
	assert.Equal(t, 3, a.CreatedCapacity)
	assert.ElementsMatch(t, ids(s.members(spotGroup)), a.CreatedInstances.CreatedInstance)
	for _, i := range s.members(spotGroup) {
		assert.Equal(t, "InService", i.LifecycleState)
		assert.Equal(t, "Healthy", i.HealthStatus)
		assert.Equal(t, resp.ScalingActivityId, i.ScalingActivityId)
		assert.Equal(t, alisim.SpotAsPriceGo, i.SpotStrategy)
	}
	g := s.group(spotGroup)
	assert.Equal(t, []int{3, 3, 3, 0, 0}, []int{g.TotalCapacity, g.ActiveCapacity, g.SpotCapacity, g.PendingCapacity, g.InitCapacity})
}

func TestActivitiesOfAGroupRunOneByOneUnlessParallel(t *testing.T) {
	for _, test := range []struct {
		name          string
		first, second func(*ess.ScaleWithAdjustmentRequest)
		desired       *int
		code          string
	}{
		{"two plain ones", func(*ess.ScaleWithAdjustmentRequest) {}, func(*ess.ScaleWithAdjustmentRequest) {}, nil, "ScalingActivityInProgress"},
		{"two parallel ones", parallel, parallel, nil, ""},
		{"parallel beside plain", func(*ess.ScaleWithAdjustmentRequest) {}, parallel, nil, "ScalingActivityInProgress"},
		{"plain beside parallel", parallel, func(*ess.ScaleWithAdjustmentRequest) {}, nil, "ScalingActivityInProgress"},
		{"in a group with desired capacity", func(*ess.ScaleWithAdjustmentRequest) {}, func(*ess.ScaleWithAdjustmentRequest) {}, ptr.To(0), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) { w.Pools[0].DesiredCapacity = test.desired })
			_, err := s.scale(spotGroup, 1, test.first)
			require.NoError(t, err)
			_, err = s.scale(spotGroup, 1, test.second)
			assert.Equal(t, test.code, codeOf(t, err))
			_, err = s.scale(onDemandGroup, 1)
			assert.NoError(t, err, "another group is not concerned")
			s.settle()
			_, err = s.scale(spotGroup, 1)
			assert.NoError(t, err, "the way is free again")
		})
	}
}

func TestRemovingTakesTheOnlyPlace(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 2)
	members := ids(s.members(spotGroup))
	_, err := s.removeInstances(spotGroup, members[:1])
	require.NoError(t, err)
	_, err = s.removeInstances(spotGroup, members[1:])
	assert.Equal(t, "ScalingActivityInProgress", codeOf(t, err))
}

func TestSizeStaysWithinTheLimits(t *testing.T) {
	for _, test := range []struct {
		name                      string
		kind                      string
		before, min, max, asked   int
		status, code              string
		created, destroyed, after int
	}{
		{"up to the maximum", "QuantityChangeInCapacity", 3, 0, 5, 10, "Successful", "", 2, 0, 5},
		{"at the maximum", "QuantityChangeInCapacity", 5, 0, 5, 1, "Rejected", "IncorrectCapacity.MaxSize", 0, 0, 5},
		{"down to the minimum", "QuantityChangeInCapacity", 4, 2, 5, -4, "Successful", "", 0, 2, 2},
		{"at the minimum", "QuantityChangeInCapacity", 2, 2, 5, -1, "Rejected", "IncorrectCapacity.MinSize", 0, 0, 2},
		{"total up", "TotalCapacity", 2, 0, 5, 4, "Successful", "", 2, 0, 4},
		{"total down", "TotalCapacity", 4, 0, 5, 1, "Successful", "", 0, 3, 1},
		{"total above the maximum", "TotalCapacity", 1, 0, 5, 9, "Successful", "", 4, 0, 5},
		{"total as it is", "TotalCapacity", 3, 0, 5, 3, "Rejected", "IncorrectCapacity.NoChange", 0, 0, 3},
		{"half as many again", "PercentChangeInCapacity", 4, 0, 9, 50, "Successful", "", 2, 0, 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) {
				w.Pools[0].Instances, w.Pools[0].MinSize, w.Pools[0].MaxSize = test.before, test.min, test.max
			})
			resp, err := s.scale(spotGroup, test.asked, func(r *ess.ScaleWithAdjustmentRequest) { r.AdjustmentType = test.kind })
			require.NoError(t, err)
			s.settle()
			a := s.activity(resp.ScalingActivityId)
			assert.Equal(t, test.status, a.StatusCode)
			assert.Equal(t, test.code, a.ErrorCode)
			assert.Equal(t, test.created, a.CreatedCapacity)
			assert.Equal(t, test.destroyed, a.DestroyedCapacity)
			assert.Len(t, s.members(spotGroup), test.after)
		})
	}
}

func TestParallelActivitiesShareTheMaximum(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].MaxSize = 5 })
	for range 3 {
		_, err := s.scale(spotGroup, 2, parallel)
		require.NoError(t, err)
	}
	s.settle()
	assert.Len(t, s.members(spotGroup), 5)
}

func TestLoweringAWishThatWasNeverFulfilledRemovesNothing(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].Instances, w.Pools[0].DesiredCapacity = 2, ptr.To(2) })
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultPartialFill, Times: 1}))
	s.buy(spotGroup, 3)
	assert.Equal(t, 5, s.group(spotGroup).DesiredCapacity)
	resp, err := s.scale(spotGroup, -3)
	require.NoError(t, err)
	assert.Equal(t, []string{"CapacityChange", ""}, []string{resp.ActivityType, resp.ScalingActivityId})
	s.pass(10 * (healthCheckDelay + activityDelay))
	assert.Equal(t, 2, s.group(spotGroup).DesiredCapacity)
	assert.Len(t, s.members(spotGroup), 2)
}

func TestFailuresAppearInTheActivityOnly(t *testing.T) {
	soldOut := func(s *sim) {
		for _, zone := range []string{zoneA, zoneB, zoneC} {
			s.SetStock(small, zone, 0)
			s.SetStock(medium, zone, 0)
		}
	}
	for _, test := range []struct {
		name    string
		world   func(*alisim.World)
		prepare func(*sim)
		change  func(*ess.ScaleWithAdjustmentRequest)
		asked   int
		status  string
		code    string
		created int
	}{
		{name: "sold out", prepare: soldOut, asked: 2, status: "Failed", code: "OperationDenied.NoStock"},
		{name: "partly sold out", prepare: func(s *sim) { soldOut(s); s.SetStock(small, zoneB, 2) }, asked: 5, status: "Warning", code: "OperationDenied.NoStock", created: 2},
		{name: "not on sale", world: func(w *alisim.World) {
			w.Types = append(w.Types, alisim.Type{ID: "ecs.test.unsold", VCPU: 1, MemoryGiB: 1})
			w.Pools[0].InstanceTypes = []string{"ecs.test.unsold"}
		}, asked: 1, status: "Failed", code: "Zone.NotOnSale"},
		{name: "price above the limit", world: func(w *alisim.World) {
			w.Pools[0].SpotStrategy, w.Pools[0].InstanceTypes = alisim.SpotWithPriceLimit, []string{small}
			w.Pools[0].SpotPriceLimits = map[string]float64{small: 3.9}
		}, asked: 1, status: "Failed", code: "InvalidSpotPriceLimit.LowerThanPublicPrice"},
		{name: "no address left", world: func(w *alisim.World) {
			w.VSwitches[0].AvailableIPs, w.Pools[0].VSwitches = 2, []string{vswA}
		}, asked: 3, status: "Warning", code: "InvalidVSwitchId.IpNotEnough", created: 2},
		{name: "quota used up", world: func(w *alisim.World) { w.Quota.Instances = 4 }, asked: 6, status: "Warning", code: "QuotaExceed.ElasticQuota", created: 4},
		{name: "no configuration", world: func(w *alisim.World) { w.Pools[0].InstanceTypes = nil }, asked: 1, status: "Failed", code: "InvalidScalingConfiguration.NotFound"},
		{name: "no vSwitch", world: func(w *alisim.World) { w.Pools[0].VSwitches = nil }, asked: 1, status: "Failed", code: "Zone.NotOnSale"},
		{name: "scale-out suspended", world: func(w *alisim.World) { w.Pools[0].SuspendedProcesses = []string{"ScaleOut"} }, asked: 1, status: "Rejected", code: "OperationDenied.ProcessSuspended"},
	} {
		t.Run(test.name, func(t *testing.T) {
			world, prepare := test.world, test.prepare
			if world == nil {
				world = func(*alisim.World) {}
			}
			s := start(t, world)
			if prepare != nil {
				prepare(s)
			}
			a := s.buy(spotGroup, test.asked)
			assert.Equal(t, test.status, a.StatusCode)
			assert.Equal(t, test.code, a.ErrorCode)
			assert.NotEmpty(t, a.ErrorMessage)
			assert.Equal(t, test.created, a.CreatedCapacity)
			assert.Len(t, s.members(spotGroup), test.created)
		})
	}
}

func TestSuspendedAndInactiveGroupsRefuse(t *testing.T) {
	for name, change := range map[string]func(*alisim.Pool){
		"suspended by the system": func(p *alisim.Pool) { p.SystemSuspended = true },
		"inactive":                func(p *alisim.Pool) { p.LifecycleState = "Inactive" },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) { change(&w.Pools[0]) })
			_, err := s.scale(spotGroup, 1)
			assert.Equal(t, "IncorrectScalingGroupStatus", codeOf(t, err))
		})
	}
}

// fill says which offerings a purchase came from.
func fill(members []ess.ScalingInstance) map[string]int {
	out := map[string]int{}
	for _, i := range members {
		out[fmt.Sprintf("%s %s %s", i.InstanceType, i.ZoneId, i.SpotStrategy)]++
	}
	return out
}

func offering(instanceType, zone, strategy string) string {
	return fmt.Sprintf("%s %s %s", instanceType, zone, strategy)
}

func TestThePolicyChoosesTheOffering(t *testing.T) {
	const spot = alisim.SpotAsPriceGo
	for _, test := range []struct {
		name    string
		policy  string
		prepare func(*sim)
		count   int
		want    map[string]int
	}{
		{"priority takes the first", "PRIORITY", nil, 3, map[string]int{offering(small, zoneA, spot): 3}},
		{"priority tries types before zones", "PRIORITY", func(s *sim) { s.SetStock(small, zoneA, 1) }, 3,
			map[string]int{offering(small, zoneA, spot): 1, offering(medium, zoneA, spot): 2}},
		{"balance spreads over zones", "BALANCE", nil, 6,
			map[string]int{offering(small, zoneA, spot): 2, offering(small, zoneB, spot): 2, offering(small, zoneC, spot): 2}},
		{"balance passes an empty zone over", "BALANCE", func(s *sim) { s.SetStock(small, zoneB, 0); s.SetStock(medium, zoneB, 0) }, 4,
			map[string]int{offering(small, zoneA, spot): 2, offering(small, zoneC, spot): 2}},
		{"cost takes the lowest price per vCPU", "COST_OPTIMIZED", nil, 2, map[string]int{offering(medium, zoneA, spot): 2}},
		{"cost follows the price", "COST_OPTIMIZED", func(s *sim) { s.SetPrice(small, zoneC, 1, 12); s.SetStock(small, zoneC, 1) }, 2,
			map[string]int{offering(small, zoneC, spot): 1, offering(medium, zoneA, spot): 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) { w.Pools[0].MultiAZPolicy = test.policy })
			if test.prepare != nil {
				test.prepare(s)
			}
			s.buy(spotGroup, test.count)
			assert.Equal(t, test.want, fill(s.members(spotGroup)))
		})
	}
}

func TestARequestMayNameItsOffering(t *testing.T) {
	aim := target(medium, vswC, alisim.NoSpot)
	for _, test := range []struct {
		name   string
		world  func(*alisim.World)
		fault  bool
		want   string
		change func(*ess.ScaleWithAdjustmentRequest)
		code   string
	}{
		{name: "and gets it", change: aim, want: offering(medium, zoneC, alisim.NoSpot)},
		{name: "in a world that ignores it", change: aim, world: func(w *alisim.World) { w.IgnoreTargeting = true }, want: offering(small, zoneA, alisim.SpotAsPriceGo)},
		{name: "in a pool that ignores it", change: aim, world: func(w *alisim.World) { w.Pools[0].IgnoreTargeting = true }, want: offering(small, zoneA, alisim.SpotAsPriceGo)},
		{name: "while a fault ignores it", change: aim, fault: true, want: offering(small, zoneA, alisim.SpotAsPriceGo)},
		{name: "of a type that is not the group's", change: target(large, vswC, alisim.NoSpot), code: "InvalidParameter"},
		{name: "in a vSwitch that is not the group's", change: target(small, "vsw-x", alisim.NoSpot), code: "InvalidParameter"},
		{name: "with a strategy that is none", change: target(small, vswA, "Cheap"), code: "InvalidParameter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			world := test.world
			if world == nil {
				world = func(*alisim.World) {}
			}
			s := start(t, world)
			if test.fault {
				require.NoError(t, s.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultIgnoreTargeting, Times: 1}))
			}
			_, err := s.scale(spotGroup, 2, test.change)
			require.Equal(t, test.code, codeOf(t, err))
			s.settle()
			if test.code == "" {
				assert.Equal(t, map[string]int{test.want: 2}, fill(s.members(spotGroup)))
			}
		})
	}
}

func TestOnDemandCompensatesForSpotUnlessForbidden(t *testing.T) {
	for _, test := range []struct {
		name       string
		compensate *bool
		onDemand   int
		status     string
		want       map[string]int
	}{
		{"by default", nil, market.Unlimited, "Successful", map[string]int{offering(small, zoneA, alisim.SpotAsPriceGo): 1, offering(small, zoneA, alisim.NoSpot): 2}},
		{"as far as there is any", nil, 1, "Warning", map[string]int{offering(small, zoneA, alisim.SpotAsPriceGo): 1, offering(small, zoneA, alisim.NoSpot): 1}},
		{"forbidden", ptr.To(false), market.Unlimited, "Warning", map[string]int{offering(small, zoneA, alisim.SpotAsPriceGo): 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) { w.Pools[0].CompensateWithOnDemand = test.compensate })
			s.SetStock(small, zoneA, 1)
			s.SetOnDemandStock(small, zoneA, test.onDemand)
			a := s.buy(spotGroup, 3, target(small, vswA, alisim.SpotAsPriceGo))
			assert.Equal(t, test.status, a.StatusCode)
			assert.Equal(t, test.want, fill(s.members(spotGroup)))
			assert.Equal(t, test.compensate == nil, s.group(spotGroup).CompensateWithOnDemand)
		})
	}
}

func TestClientTokensMakePurchasesIdempotent(t *testing.T) {
	s := start(t)
	first, err := s.scale(spotGroup, 2, token("t1"))
	require.NoError(t, err)
	again, err := s.scale(spotGroup, 2, token("t1"))
	require.NoError(t, err, "although the first activity is still in progress")
	assert.Equal(t, first.ScalingActivityId, again.ScalingActivityId)
	s.settle()
	assert.Len(t, s.members(spotGroup), 2)

	_, err = s.scale(spotGroup, 3, token("t1"))
	assert.Equal(t, "IdempotentParameterMismatch", codeOf(t, err))
	_, err = s.scale(onDemandGroup, 2, token("t1"))
	assert.Equal(t, "IdempotentParameterMismatch", codeOf(t, err))
	other, err := s.scale(spotGroup, 2, token("t2"))
	require.NoError(t, err)
	assert.NotEqual(t, first.ScalingActivityId, other.ScalingActivityId)

	s.pass(25 * time.Hour)
	status, body := s.raw(http.MethodPost, s.signed(http.MethodPost, versionESS, "ScaleWithAdjustment", set("ScalingGroupId", spotGroup),
		set("AdjustmentType", "TotalCapacity"), set("AdjustmentValue", "1"), set("ClientToken", "t1")), false)
	assert.Equal(t, 200, status, "a token is forgotten after a day: %v", body)
}

func TestRefusedRequestsDoNotUseTheirTokenUp(t *testing.T) {
	s := start(t)
	_, err := s.scale(spotGroup, 1)
	require.NoError(t, err)
	_, err = s.scale(spotGroup, 1, token("t1"))
	require.Equal(t, "ScalingActivityInProgress", codeOf(t, err))
	s.settle()
	_, err = s.scale(spotGroup, 1, token("t1"))
	assert.NoError(t, err)
}

func TestTokensHaveAForm(t *testing.T) {
	s := start(t)
	for name, text := range map[string]string{"65 characters": strings.Repeat("x", 65), "not ASCII": "tökenø"} {
		t.Run(name, func(t *testing.T) {
			_, err := s.scale(spotGroup, 1, token(text))
			assert.Equal(t, "InvalidParameter", codeOf(t, err))
		})
	}
	_, err := s.scale(spotGroup, 1, token(strings.Repeat("x", 64)))
	assert.NoError(t, err)
}

func TestRemovingInstances(t *testing.T) {
	keepDesired := func(r *ess.RemoveInstancesRequest) { r.DecreaseDesiredCapacity = requests.NewBoolean(false) }
	ignore := func(r *ess.RemoveInstancesRequest) { r.IgnoreInvalidInstance = requests.NewBoolean(true) }
	for _, test := range []struct {
		name     string
		min      int
		desired  *int
		named    func(members []string) []string
		change   []func(*ess.RemoveInstancesRequest)
		code     string
		after    int
		afterNow int
	}{
		{name: "releases them", named: func(m []string) []string { return m[:2] }, afterNow: 2, after: 2},
		{name: "stops at the minimum", min: 3, named: func(m []string) []string { return m[:2] }, code: "IncorrectCapacity.MinSize", afterNow: 4, after: 4},
		{name: "refuses strangers", named: func(m []string) []string { return []string{m[0], "i-x"} }, code: "InvalidInstanceId.NotFound", afterNow: 4, after: 4},
		{name: "ignores strangers if told so", named: func(m []string) []string { return []string{m[0], "i-x"} }, change: []func(*ess.RemoveInstancesRequest){ignore}, afterNow: 3, after: 3},
		{name: "needs one that is no stranger", named: func([]string) []string { return []string{"i-x"} }, change: []func(*ess.RemoveInstancesRequest){ignore}, code: "InvalidInstanceId.NotFound", afterNow: 4, after: 4},
		{name: "lowers the desired capacity", desired: ptr.To(4), named: func(m []string) []string { return m[:1] }, afterNow: 3, after: 3},
		{name: "replaces where the desired capacity is to stay", desired: ptr.To(4), min: 4, named: func(m []string) []string { return m[:1] },
			change: []func(*ess.RemoveInstancesRequest){keepDesired}, afterNow: 3, after: 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) {
				w.Pools[0].Instances, w.Pools[0].MinSize, w.Pools[0].DesiredCapacity = 4, test.min, test.desired
			})
			members := ids(s.members(spotGroup))
			_, err := s.removeInstances(spotGroup, test.named(members), test.change...)
			require.Equal(t, test.code, codeOf(t, err))
			assert.Len(t, s.members(spotGroup), 4, "removing takes its time")
			assert.Equal(t, 4-test.afterNow, s.group(spotGroup).RemovingCapacity)
			s.settle()
			assert.Len(t, s.members(spotGroup), test.afterNow)
			s.pass(healthCheckDelay + activityDelay + healthCheckDelay)
			assert.Len(t, s.members(spotGroup), test.after)
		})
	}
}

func TestRemovedInstancesAreGoneEverywhere(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 1)
	id := ids(s.members(spotGroup))[0]
	resp, err := s.removeInstances(spotGroup, []string{id})
	require.NoError(t, err)
	assert.Equal(t, "Removing", s.members(spotGroup)[0].LifecycleState)
	_, err = s.removeInstances(spotGroup, []string{id})
	assert.Equal(t, "InvalidInstanceId.NotFound", codeOf(t, err), "it is on its way out already")
	s.settle()
	assert.Equal(t, "Successful", s.activity(resp.ScalingActivityId).StatusCode)
	assert.Equal(t, []string{id}, s.activity(resp.ScalingActivityId).DestroyedInstances.DestroyedInstance)
	assert.Empty(t, s.members(spotGroup))
	assert.Empty(t, s.machines(nil))
	assert.Empty(t, s.Instances())
	assert.Equal(t, 404, s.metadata(id, "instance-id").status)
}

func TestActivitiesAreListedNewestFirst(t *testing.T) {
	s := start(t)
	var want []string
	for range 3 {
		want = append([]string{s.buy(spotGroup, 1).ScalingActivityId}, want...)
	}
	s.scale(spotGroup, 1)
	for _, test := range []struct {
		status string
		count  int
	}{{"", 4}, {"Successful", 3}, {"InProgress", 1}, {"Failed", 0}} {
		r := ess.CreateDescribeScalingActivitiesRequest()
		r.ScalingGroupId, r.StatusCode = spotGroup, test.status
		resp, err := s.ess.DescribeScalingActivities(r)
		require.NoError(t, err)
		assert.Equal(t, test.count, resp.TotalCount)
		if test.status == "Successful" {
			var got []string
			for _, a := range resp.ScalingActivities.ScalingActivity {
				got = append(got, a.ScalingActivityId)
			}
			assert.Equal(t, want, got)
		}
	}
	r := ess.CreateDescribeScalingActivitiesRequest()
	r.ScalingActivityId = &[]string{"asa-x", want[0]}
	resp, err := s.ess.DescribeScalingActivities(r)
	require.NoError(t, err)
	assert.Equal(t, 1, resp.TotalCount, "unknown activities are left out")
}
