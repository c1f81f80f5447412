package scaling

import (
	"maps"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
)

// Lifecycle states of a scaling group.
const (
	GroupActive   = "Active"
	GroupInactive = "Inactive"
	GroupDeleting = "Deleting"
)

// Health check types.
const (
	HealthCheckECS  = "ECS"
	HealthCheckNone = "NONE"
)

// Names of processes.
const (
	ProcessScaleIn     = "ScaleIn"
	ProcessScaleOut    = "ScaleOut"
	ProcessHealthCheck = "HealthCheck"
)

// Processes are those that can be suspended.
var Processes = []string{ProcessScaleIn, ProcessScaleOut, ProcessHealthCheck, "AlarmNotification", "ScheduledAction"}

// Group is a scaling group and its scaling configuration.
type Group struct {
	Pool
	// scaling is what the group belongs to.
	scaling *Engine
	seq     uint64
	Created time.Time
	// ConfigID is empty where the group has no scaling configuration.
	ConfigID string
	Members  cloud.Roster[*Member]
	// Listed are those that DescribeScalingInstances shows.
	Listed Listing
	// States counts members by lifecycle state.
	States map[string]int
	// History lists activities, oldest first; running those in progress.
	History []*Activity
	running []*Activity
	// healing says that a look at the group's size is on the agenda.
	healing bool
	// unreplaced are members with a notice whose replacement waits for its turn.
	unreplaced []*Member
}

// Ordinal is its place in the order of making.
func (g *Group) Ordinal() uint64 { return g.seq }

// PutGroup adds a group, or changes one without touching its instances. The pool has to be valid.
func (s *Engine) PutGroup(p Pool) {
	p = p.withDefaults()
	p.Tags, p.ConfigurationTags = maps.Clone(p.Tags), maps.Clone(p.ConfigurationTags)
	p.SuspendedProcesses = slices.Clone(p.SuspendedProcesses)
	g, known := s.groupByID[p.ID]
	if !known {
		g = &Group{scaling: s, seq: s.Cloud.Ordinal(), Created: s.Cloud.Clock.Now(), States: map[string]int{}}
		s.groups.Add(g)
		s.groupByID[p.ID] = g
	}
	g.Pool = p
	if len(p.InstanceTypes) > 0 && g.ConfigID == "" {
		g.ConfigID = s.Cloud.NewID("asc-")
	} else if len(p.InstanceTypes) == 0 {
		g.ConfigID = ""
	}
	if !known && p.Instances > 0 {
		furnish(g, p.Instances)
	}
	g.CheckSoon()
}

// furnish gives a new group instances that have been there since before the world began.
func furnish(g *Group, count int) {
	s := g.scaling
	a := g.newActivity(purchaseOf(count), "The world begins with these instances.")
	a.aged = true
	a.buy(s.Cloud.Clock.Now())
	a.finish(s.Cloud.Clock.Now())
}

// DeleteGroup releases all instances of a group at once and forgets it; false where there is none.
func (s *Engine) DeleteGroup(id string) bool {
	g, known := s.groupByID[id]
	if !known {
		return false
	}
	for _, i := range slices.Clone(g.Members.Items) {
		s.Compute.Release(i.Instance)
		i.detach()
	}
	for _, a := range slices.Clone(g.running) {
		a.end(ActivityFailed, s.Cloud.Clock.Now())
	}
	for _, r := range slices.Clone(s.rules.Items) {
		if r.Group == g {
			s.DeleteRule(r)
		}
	}
	g.LifecycleState = GroupDeleting
	s.groups.Remove(g)
	delete(s.groupByID, g.ID)
	return true
}

// Capacity is how many instances the group has, those being removed not counted.
func (g *Group) Capacity() int {
	return g.Members.Len() - g.States[StateRemoving]
}

// Expected is its capacity once all activities in progress have ended well.
func (g *Group) Expected() int {
	n := g.Capacity()
	for _, a := range g.running {
		n += a.outstanding()
	}
	return n
}

// stable is how many instances are neither on their way in nor on their way out.
func (g *Group) stable() int {
	return g.States[StateInService] + g.States[StateProtected] + g.States[StateStandby]
}

// SpotCount is how many members are spot instances.
func (g *Group) SpotCount() (n int) {
	for _, i := range g.Members.Items {
		if i.IsSpot() {
			n++
		}
	}
	return n
}

// Target is the size that adjustments start from.
func (g *Group) Target() int {
	s := g.scaling
	switch {
	case g.DesiredCapacity == nil:
		return g.Expected()
	case s.Cloud.Temper.Expectation:
		return g.stable()
	}
	return *g.DesiredCapacity
}

// Suspended says whether a process, or everything, is suspended.
func (g *Group) Suspended(process string) bool {
	return g.SystemSuspended || slices.Contains(g.SuspendedProcesses, process)
}

// Clamp keeps a size between the group's minimum and maximum.
func (g *Group) Clamp(size int) int { return max(g.MinSize, min(g.MaxSize, size)) }
