package ess

import (
	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
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
