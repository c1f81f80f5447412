// Package scaling holds the scaling groups of a simulated cloud: their instances and activities, what they buy and remove,
// and what they do by themselves. Package ess answers the requests about them.
//
//	scaling.go, group.go, member.go, activity.go, pool.go, listing.go  what there is
//	resize.go, purchase.go, shelf.go, mix.go, removal.go, heal.go      what happens to it, at once and later
//	rollback.go                                                        activities that come short
//	views.go                                                           what tests are shown
package scaling

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

// Engine is every scaling group. All methods expect the cloud's lock to be held.
type Engine struct {
	Options
	Cloud   *cloud.Cloud
	Compute *ecs.Compute

	groups     cloud.Roster[*Group]
	groupByID  map[string]*Group
	rules      cloud.Roster[*Rule]
	ruleByID   map[string]*Rule
	activities map[string]*Activity

	// members are the instances that belong to a group. One that was reclaimed stays a member until a health check misses
	// it.
	members  cloud.Roster[*Member]
	memberBy map[string]*Member
	// listed are the members that DescribeScalingInstances shows, which may lag behind.
	listed   Listing
	listedBy map[string]*Member

	// launches counts the instances bought, and removals those that a client had removed, since the temper treats one in so
	// many of them otherwise.
	launches, removals int
}

// New returns a service without groups, which watches over the instances of compute.
func New(c *cloud.Cloud, compute *ecs.Compute, options Options) *Engine {
	s := &Engine{
		Options: options, Cloud: c, Compute: compute, groupByID: map[string]*Group{}, ruleByID: map[string]*Rule{},
		activities: map[string]*Activity{}, memberBy: map[string]*Member{}, listedBy: map[string]*Member{},
	}
	compute.Watch(s)
	return s
}

// AllGroups lists the scaling groups, oldest first.
func (s *Engine) AllGroups() *cloud.Roster[*Group] { return &s.groups }

// FindGroup returns the scaling group of the ID; false where there is none.
func (s *Engine) FindGroup(id string) (*Group, bool) {
	g, known := s.groupByID[id]
	return g, known
}

// FindMember returns the member of any group that has the instance ID; false where there is none.
func (s *Engine) FindMember(instanceID string) (*Member, bool) {
	i, known := s.memberBy[instanceID]
	return i, known
}

// Listed lists the members that DescribeScalingInstances shows, oldest first.
func (s *Engine) Listed() *Listing { return &s.listed }

// FindListed is FindMember among those that DescribeScalingInstances shows.
func (s *Engine) FindListed(instanceID string) (*Member, bool) {
	i, known := s.listedBy[instanceID]
	return i, known
}

// FindActivity returns the activity of the ID; false where there is none.
func (s *Engine) FindActivity(id string) (*Activity, bool) {
	a, known := s.activities[id]
	return a, known
}

// Codes of refusals, and of activities that were rejected or came to nothing.
const (
	CodeInProgress = "ScalingActivityInProgress"
	CodeBelowMin   = "IncorrectCapacity.MinSize"
	CodeAboveMax   = "IncorrectCapacity.MaxSize"
	CodeNoChange   = "IncorrectCapacity.NoChange"
	CodeNoConfig   = "InvalidScalingConfiguration.NotFound"
	CodeStatus     = "IncorrectInstanceStatus"
	CodeRolledBack = "OperationFailed.RolledBack"
	CodeNotStopped = "OperationFailed.InstanceNotStopped"
	CodeNotGone    = "OperationFailed.InstanceNotReleased"
	CodeSuspended  = "OperationDenied.ProcessSuspended"
)
