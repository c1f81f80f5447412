package alisim_test

import (
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *sim) rules() []ess.ScalingRule {
	s.t.Helper()
	r := ess.CreateDescribeScalingRulesRequest()
	r.ScalingGroupId = spotGroup
	resp, err := s.ess.DescribeScalingRules(r)
	require.NoError(s.t, err)
	return resp.ScalingRules.ScalingRule
}

func TestARuleIsMadeChangedCarriedOutAndDeleted(t *testing.T) {
	s := start(t)
	create := ess.CreateCreateScalingRuleRequest()
	create.ScalingGroupId, create.ScalingRuleName, create.AdjustmentType = spotGroup, "grow", "TotalCapacity"
	create.AdjustmentValue = requests.NewInteger(3)
	made, err := s.ess.CreateScalingRule(create)
	require.NoError(t, err)
	require.Len(t, s.rules(), 1)
	assert.Equal(t, made.ScalingRuleId, s.rules()[0].ScalingRuleId)
	assert.Equal(t, "grow", s.rules()[0].ScalingRuleName)

	execute := func() ess.ScalingActivity {
		r := ess.CreateExecuteScalingRuleRequest()
		r.ScalingRuleAri = made.ScalingRuleAri
		resp, err := s.ess.ExecuteScalingRule(r)
		require.NoError(t, err)
		s.settle()
		return s.activity(resp.ScalingActivityId)
	}
	assert.Equal(t, 3, execute().CreatedCapacity)
	assert.Equal(t, "Rejected", execute().StatusCode, "the group has that size already")

	modify := ess.CreateModifyScalingRuleRequest()
	modify.ScalingRuleId, modify.AdjustmentValue = made.ScalingRuleId, requests.NewInteger(1)
	_, err = s.ess.ModifyScalingRule(modify)
	require.NoError(t, err)
	assert.Equal(t, 2, execute().DestroyedCapacity)

	remove := ess.CreateDeleteScalingRuleRequest()
	remove.ScalingRuleId = made.ScalingRuleId
	_, err = s.ess.DeleteScalingRule(remove)
	require.NoError(t, err)
	assert.Empty(t, s.rules())
	_, err = s.ess.DeleteScalingRule(remove)
	assert.Equal(t, "InvalidScalingRuleId.NotFound", codeOf(t, err))
}

func TestRulesAreRefusedThatCouldNotBeCarriedOut(t *testing.T) {
	s := start(t)
	for name, change := range map[string]func(*ess.CreateScalingRuleRequest){
		"no adjustment":         func(r *ess.CreateScalingRuleRequest) { r.AdjustmentType, r.AdjustmentValue = "", "" },
		"unknown adjustment":    func(r *ess.CreateScalingRuleRequest) { r.AdjustmentType = "Guess" },
		"too much":              func(r *ess.CreateScalingRuleRequest) { r.AdjustmentValue = requests.NewInteger(1001) },
		"kind of its own":       func(r *ess.CreateScalingRuleRequest) { r.ScalingRuleType = "PredictiveScalingRule" },
		"group that is not one": func(r *ess.CreateScalingRuleRequest) { r.ScalingGroupId = "asg-x" },
	} {
		t.Run(name, func(t *testing.T) {
			r := ess.CreateCreateScalingRuleRequest()
			r.ScalingGroupId, r.AdjustmentType, r.AdjustmentValue = spotGroup, "QuantityChangeInCapacity", requests.NewInteger(1)
			change(r)
			_, err := s.ess.CreateScalingRule(r)
			assert.Error(t, err)
			assert.Empty(t, s.rules())
		})
	}
}
