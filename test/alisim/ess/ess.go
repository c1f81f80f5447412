// Package ess answers the requests to Auto Scaling, ESS 2014-08-28, on the scaling groups of package scaling. A call that
// buys is accepted at once; whether anything came is to be read from DescribeScalingActivities.
package ess

import (
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// Service returns the actions of ESS 2014-08-28 on the scaling groups.
func Service(s *scaling.Engine) protocol.Service {
	groups, instances, activities := groupActions{s}, instanceActions{s}, activityActions{s}
	adjustments, strength := &scalingActions{Engine: s}, strengthActions{s}
	rules := ruleActions{s, adjustments}
	return protocol.Service{Name: "Ess", Version: "2014-08-28", Actions: map[string]protocol.Action{
		"DescribeScalingGroups":         {Handle: groups.describeScalingGroups},
		"DescribeScalingInstances":      {Handle: instances.describeScalingInstances},
		"DescribeScalingConfigurations": {Handle: groups.describeScalingConfigurations},
		"DescribeScalingActivities":     {Handle: activities.describeScalingActivities},
		"DescribeScalingRules":          {Handle: rules.describeScalingRules},
		"CreateScalingRule":             {Handle: rules.createScalingRule},
		"ModifyScalingRule":             {Handle: rules.modifyScalingRule},
		"DeleteScalingRule":             {Handle: rules.deleteScalingRule},
		"DescribeElasticStrength":       {Handle: strength.describeElasticStrength, OnlyByGET: true},
		"ExecuteScalingRule":            {Handle: rules.executeScalingRule, Idempotent: true},
		"ScaleWithAdjustment":           {Handle: adjustments.scaleWithAdjustment, Idempotent: true, Slot: adjustments.slotForScaling},
		"RemoveInstances":               {Handle: instances.removeInstances, Idempotent: true, Slot: adjustments.slotForRemoving},
		"AttachInstances":               {Handle: instances.attachInstances, Idempotent: true, Slot: adjustments.slotForRemoving},
		"SetInstancesProtection":        {Handle: instances.setInstancesProtection},
		"EnterStandby":                  {Handle: instances.enterStandby, Idempotent: true},
		"ExitStandby":                   {Handle: instances.exitStandby, Idempotent: true},
		"ModifyScalingGroup":            {Handle: groups.modifyScalingGroup},
		"SuspendProcesses":              {Handle: groups.suspendProcesses, Idempotent: true},
		"ResumeProcesses":               {Handle: groups.resumeProcesses, Idempotent: true},
		"ListTagResources":              {Handle: groups.listTagResources},
		"TagResources":                  {Handle: groups.tagResources},
		"UntagResources":                {Handle: groups.untagResources},
	}}.Under(s.Cloud)
}

func groupNotFound(id string) *protocol.Error {
	return protocol.NotFound("InvalidScalingGroupId.NotFound", "The specified scaling group %q is not found.", id)
}

func instanceNotFound(id string) *protocol.Error {
	return protocol.NotFound("InvalidInstanceId.NotFound", "Instance %q is not in the specified scaling group.", id)
}
