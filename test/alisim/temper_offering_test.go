package alisim_test

import (
	"encoding/json"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

func TestThePolicyDecidesWhetherOnDemandCompensatesForSpot(t *testing.T) {
	for policy, compensates := range map[string]bool{"PRIORITY": false, "BALANCE": false, "COMPOSABLE": false, "COST_OPTIMIZED": true} {
		t.Run(policy, func(t *testing.T) {
			s := startUnder(t, func(r *temper.Rules) { r.PolicyDecides = true }, func(w *alisim.World) {
				w.Pools[0].MultiAZPolicy, w.Pools[0].CompensateWithOnDemand = policy, ptr.To(true)
				w.Pools[0].OnDemandPercentageAboveBaseCapacity, w.Pools[0].SpotInstanceRemedy = ptr.To(0), true
			})
			s.SetStock(small, zoneA, 1)
			a := s.buy(spotGroup, 2, target(small, vswA, alisim.SpotAsPriceGo))
			assert.Equal(t, compensates, a.StatusCode == "Successful")

			require.NoError(t, s.Reclaim(ids(s.members(spotGroup))[0]))
			view, _ := s.Group(spotGroup)
			assert.Equal(t, compensates, len(view.Activities) == 2, "its own replacements too")
		})
	}
}

func TestAGroupMayWantOnDemandInstancesAmongItsSpotInstances(t *testing.T) {
	for _, test := range []struct {
		name, policy   string
		base, percent  *int
		count          int
		spot, onDemand int
	}{
		{"a base", "COST_OPTIMIZED", ptr.To(2), nil, 5, 3, 2},
		{"a share", "COST_OPTIMIZED", nil, ptr.To(50), 4, 2, 2},
		{"a share above a base", "COST_OPTIMIZED", ptr.To(1), ptr.To(25), 5, 3, 2},
		{"nothing but them, unless told otherwise", "COMPOSABLE", nil, nil, 3, 0, 3},
		{"none of them, where told so", "COMPOSABLE", nil, ptr.To(0), 3, 3, 0},
		{"other policies know no mix", "PRIORITY", ptr.To(3), ptr.To(100), 3, 3, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) {
				p := &w.Pools[0]
				p.MultiAZPolicy, p.OnDemandBaseCapacity, p.OnDemandPercentageAboveBaseCapacity = test.policy, test.base, test.percent
			})
			s.buy(spotGroup, test.count, target(small, vswA, alisim.SpotAsPriceGo))
			got := fill(s.members(spotGroup))
			assert.Equal(t, test.spot, got[offering(small, zoneA, alisim.SpotAsPriceGo)])
			assert.Equal(t, test.onDemand, got[offering(small, zoneA, alisim.NoSpot)], "although spot instances were asked for")
		})
	}
}

func TestTheGroupTellsItsMix(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].MultiAZPolicy = "COMPOSABLE" })
	assert.Equal(t, 100, s.group(spotGroup).OnDemandPercentageAboveBaseCapacity)
	r := ess.CreateModifyScalingGroupRequest()
	r.ScalingGroupId, r.OnDemandBaseCapacity, r.OnDemandPercentageAboveBaseCapacity = spotGroup, requests.NewInteger(2), requests.NewInteger(0)
	_, err := s.ess.ModifyScalingGroup(r)
	require.NoError(t, err)
	g := s.group(spotGroup)
	assert.Equal(t, []int{2, 0, 2, 0}, []int{
		g.OnDemandBaseCapacity, g.OnDemandPercentageAboveBaseCapacity,
		g.CapacityOptions.OnDemandBaseCapacity, g.CapacityOptions.OnDemandPercentageAboveBaseCapacity,
	})
}

func TestTargetingMayBeIgnoredOrRefused(t *testing.T) {
	aim := target(medium, vswC, alisim.NoSpot)
	s := startUnder(t, func(r *temper.Rules) { r.Targeting = temper.TargetingIgnored })
	s.buy(spotGroup, 1, aim)
	assert.Equal(t, map[string]int{offering(small, zoneA, alisim.SpotAsPriceGo): 1}, fill(s.members(spotGroup)))

	s = startUnder(t, func(r *temper.Rules) { r.Targeting = temper.TargetingRefused })
	_, err := s.scale(spotGroup, 1, aim)
	assert.Equal(t, "InvalidParameter", codeOf(t, err))
	_, err = s.scale(spotGroup, 1)
	assert.NoError(t, err)
}

// allocation is what a plan would buy of an offering.
type allocation struct {
	InstanceType, ZoneId, SpotStrategy, InstanceChargeType string

	Amount int
}

func planned(t *testing.T, resp *ess.ScaleWithAdjustmentResponse) []allocation {
	t.Helper()
	var body struct {
		PlanResult struct{ ResourceAllocations []allocation }
	}
	require.NoError(t, json.Unmarshal(resp.GetHttpContentBytes(), &body))
	return body.PlanResult.ResourceAllocations
}

func TestAPlanTellsWhatWouldBeBoughtAndBuysNothing(t *testing.T) {
	plan := query("ExecutionMode", "PlanOnly")
	one := func(instanceType, zone, strategy string, amount int) allocation {
		return allocation{instanceType, zone, strategy, "PostPaid", amount}
	}
	for _, test := range []struct {
		name    string
		rules   func(*temper.Rules)
		prepare func(*sim)
		count   int
		want    []allocation
	}{
		{name: "as it was asked for", count: 3, want: []allocation{one(medium, zoneC, alisim.SpotAsPriceGo, 3)}},
		{name: "as it would be where targeting is ignored", count: 3, rules: func(r *temper.Rules) { r.Targeting = temper.TargetingIgnored },
			want: []allocation{one(small, zoneA, alisim.SpotAsPriceGo, 3)}},
		{name: "over several offerings", count: 3, rules: func(r *temper.Rules) { r.Targeting = temper.TargetingIgnored },
			prepare: func(s *sim) { s.SetStock(small, zoneA, 1) },
			want:    []allocation{one(small, zoneA, alisim.SpotAsPriceGo, 1), one(medium, zoneA, alisim.SpotAsPriceGo, 2)}},
		{name: "as far as there is stock", count: 3, prepare: func(s *sim) { s.SetStock(medium, zoneC, 2) }, want: []allocation{one(medium, zoneC, alisim.SpotAsPriceGo, 2)}},
		{name: "up to the maximum", count: 30, want: []allocation{one(medium, zoneC, alisim.SpotAsPriceGo, 20)}},
		{name: "nothing where there is none", count: 1, prepare: func(s *sim) { s.SetStock(medium, zoneC, 0) }, want: []allocation{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules := test.rules
			if rules == nil {
				rules = func(*temper.Rules) {}
			}
			s := startUnder(t, rules)
			if test.prepare != nil {
				test.prepare(s)
			}
			resp, err := s.scale(spotGroup, test.count, plan, target(medium, vswC, alisim.SpotAsPriceGo))
			require.NoError(t, err)
			assert.Equal(t, test.want, planned(t, resp))
			assert.Empty(t, resp.ScalingActivityId)
			s.settle()
			view, _ := s.Group(spotGroup)
			assert.Empty(t, view.Activities)
			assert.Empty(t, s.Instances())
		})
	}
	t.Run("while an activity is in progress", func(t *testing.T) {
		s := startUnder(t, func(r *temper.Rules) { *r = temper.Strict() })
		_, err := s.scale(spotGroup, 1)
		require.NoError(t, err)
		resp, err := s.scale(spotGroup, 1, plan, token("t"))
		require.NoError(t, err)
		assert.Len(t, planned(t, resp), 1)
	})
	t.Run("unless the cloud does not know of plans", func(t *testing.T) {
		s := startUnder(t, func(r *temper.Rules) { r.BuysPlans = true })
		resp, err := s.scale(spotGroup, 1, plan)
		require.NoError(t, err)
		assert.NotEmpty(t, resp.ScalingActivityId)
		assert.Empty(t, planned(t, resp))
		s.settle()
		assert.Len(t, s.members(spotGroup), 1)
	})
}

func TestElasticStrengthFollowsTheStock(t *testing.T) {
	s := start(t)
	s.SetStock(small, zoneA, 5)
	s.SetStock(small, zoneB, 0)
	strength := func(change func(*ess.DescribeElasticStrengthRequest)) (*ess.DescribeElasticStrengthResponse, map[string]ess.ResourcePool) {
		t.Helper()
		r := ess.CreateDescribeElasticStrengthRequest()
		change(r)
		resp, err := s.ess.DescribeElasticStrength(r)
		require.NoError(t, err)
		pools := map[string]ess.ResourcePool{}
		for _, p := range resp.ResourcePools {
			pools[p.InstanceType+" "+p.ZoneId] = p
		}
		return resp, pools
	}
	resp, pools := strength(func(r *ess.DescribeElasticStrengthRequest) { r.ScalingGroupId = spotGroup })
	assert.Equal(t, "Strong", resp.ElasticStrength)
	assert.Len(t, pools, 6)
	assert.Equal(t, []any{"Available", 3, []string{vswA}}, []any{pools[small+" "+zoneA].Status, pools[small+" "+zoneA].InventoryHealth.HealthScore, pools[small+" "+zoneA].VSwitchIds})
	assert.Equal(t, []any{"Unavailable", -3, "OperationDenied.NoStock"}, []any{pools[small+" "+zoneB].Status, pools[small+" "+zoneB].InventoryHealth.HealthScore, pools[small+" "+zoneB].Code})
	assert.Equal(t, 6, pools[medium+" "+zoneC].InventoryHealth.HealthScore)

	resp, pools = strength(func(r *ess.DescribeElasticStrengthRequest) {
		r.InstanceTypes, r.VSwitchIds, r.SpotStrategy = &[]string{small}, &[]string{vswA, vswB}, alisim.SpotAsPriceGo
	})
	assert.Equal(t, "Medium", resp.ElasticStrength, "without a group")
	assert.Len(t, pools, 2)
	resp, _ = strength(func(r *ess.DescribeElasticStrengthRequest) { r.ScalingGroupIds = &[]string{spotGroup, onDemandGroup} })
	require.Len(t, resp.ElasticStrengthModels, 2)
	assert.Len(t, resp.ElasticStrengthModels[0].ResourcePools, 6)

	_, err := s.ess.DescribeElasticStrength(ess.CreateDescribeElasticStrengthRequest())
	assert.Equal(t, "MissingVSwitchIds.1", codeOf(t, err))
}

func TestElasticStrengthIsWrongAsOftenAsTheTemperSays(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.WrongStockPercent = 100 })
	s.SetStock(small, zoneB, 0)
	r := ess.CreateDescribeElasticStrengthRequest()
	r.ScalingGroupId, r.InstanceTypes = spotGroup, &[]string{small}
	resp, err := s.ess.DescribeElasticStrength(r)
	require.NoError(t, err)
	pools := map[string]ess.ResourcePool{}
	for _, p := range resp.ResourcePools {
		pools[p.ZoneId] = p
	}
	assert.Equal(t, []any{"Unavailable", -3, "OperationDenied.NoStock"}, []any{pools[zoneA].Status, pools[zoneA].InventoryHealth.HealthScore, pools[zoneA].Code})
	assert.Equal(t, []any{"Available", 6, ""}, []any{pools[zoneB].Status, pools[zoneB].InventoryHealth.HealthScore, pools[zoneB].Code})
}
