// Package ess simulates Auto Scaling: scaling groups, what they buy and remove, and what they do by themselves. A call that
// buys is accepted at once; whether anything came is to be read from DescribeScalingActivities.
//
//	groups.go, instances.go, activities.go, states.go, …  the actions
//	group.go, member.go, activity.go                      what there is
//	purchase.go, plan.go, removal.go, heal.go             what happens to it by and by
//	rollback.go, notes.go, roll.go, slot.go               what a temper does to it
package ess

import (
	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Options say how the service behaves.
type Options struct {
	// IgnoreTargeting makes ScaleWithAdjustment accept InstanceType.N, VSwitchId.N and SpotStrategy and act as if they had
	// not been given.
	IgnoreTargeting bool
	// Speed is how many seconds of what clients name pass in one second of the clock.
	Speed float64
}

// Scaling is every scaling group. All methods expect the cloud's lock to be held.
type Scaling struct {
	Options
	cloud   *cloud.Cloud
	compute *ecs.Compute

	groups     cloud.Roster[*group]
	groupByID  map[string]*group
	rules      cloud.Roster[*rule]
	ruleByID   map[string]*rule
	activities map[string]*activity

	// members are the instances that belong to a group. One that was reclaimed stays a member until a health check misses
	// it.
	members  cloud.Roster[*member]
	memberBy map[string]*member
	// listed are the members that DescribeScalingInstances shows, which may lag behind.
	listed   roll
	listedBy map[string]*member

	// launched, noted and removed count what the temper does to one in so many: instances bought, activities with
	// metadata, instances that a client had removed.
	launched, noted, removed int
}

// New returns a service without groups, which watches over the instances of compute.
func New(c *cloud.Cloud, compute *ecs.Compute, options Options) *Scaling {
	s := &Scaling{
		Options: options, cloud: c, compute: compute, groupByID: map[string]*group{}, ruleByID: map[string]*rule{},
		activities: map[string]*activity{}, memberBy: map[string]*member{}, listedBy: map[string]*member{},
	}
	compute.Watch(s)
	return s
}

// Service is ESS 2014-08-28.
func (s *Scaling) Service() protocol.Service {
	return protocol.Service{Name: "Ess", Version: "2014-08-28", Actions: map[string]protocol.Action{
		"DescribeScalingGroups":         {Handle: s.describeScalingGroups},
		"DescribeScalingInstances":      {Handle: s.describeScalingInstances},
		"DescribeScalingConfigurations": {Handle: s.describeScalingConfigurations},
		"DescribeScalingActivities":     {Handle: s.describeScalingActivities},
		"DescribeScalingRules":          {Handle: s.describeScalingRules},
		"CreateScalingRule":             {Handle: s.createScalingRule},
		"ModifyScalingRule":             {Handle: s.modifyScalingRule},
		"DeleteScalingRule":             {Handle: s.deleteScalingRule},
		"DescribeElasticStrength":       {Handle: s.describeElasticStrength},
		"ExecuteScalingRule":            {Handle: s.executeScalingRule, Idempotent: true},
		"ScaleWithAdjustment":           {Handle: s.scaleWithAdjustment, Idempotent: true, Slot: s.slotForScaling},
		"RemoveInstances":               {Handle: s.removeInstances, Idempotent: true, Slot: s.slotForRemoving},
		"SetInstancesProtection":        {Handle: s.setInstancesProtection},
		"EnterStandby":                  {Handle: s.enterStandby, Idempotent: true},
		"ExitStandby":                   {Handle: s.exitStandby, Idempotent: true},
		"ModifyScalingGroup":            {Handle: s.modifyScalingGroup},
		"SuspendProcesses":              {Handle: s.suspendProcesses, Idempotent: true},
		"ResumeProcesses":               {Handle: s.resumeProcesses, Idempotent: true},
		"ListTagResources":              {Handle: s.listTagResources},
	}}.Under(s.cloud)
}

// Codes of refusals, and of activities that were rejected or came to nothing.
const (
	codeInProgress = "ScalingActivityInProgress"
	codeBelowMin   = "IncorrectCapacity.MinSize"
	codeAboveMax   = "IncorrectCapacity.MaxSize"
	codeNoChange   = "IncorrectCapacity.NoChange"
	codeNoConfig   = "InvalidScalingConfiguration.NotFound"
	codeStatus     = "IncorrectInstanceStatus"
	codeRolledBack = "OperationFailed.RolledBack"
	codeNotStopped = "OperationFailed.InstanceNotStopped"
	codeNotGone    = "OperationFailed.InstanceNotReleased"
	codeSuspended  = "OperationDenied.ProcessSuspended"
)

func groupNotFound(id string) *protocol.Error {
	return protocol.NotFound("InvalidScalingGroupId.NotFound", "The specified scaling group %q is not found.", id)
}

func instanceNotFound(id string) *protocol.Error {
	return protocol.NotFound("InvalidInstanceId.NotFound", "Instance %q is not in the specified scaling group.", id)
}
