package ess

import (
	"maps"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
)

// Lifecycle states of a scaling group.
const (
	groupActive   = "Active"
	groupInactive = "Inactive"
	groupDeleting = "Deleting"
)

// Health check types.
const (
	healthCheckECS  = "ECS"
	healthCheckNone = "NONE"
)

// Processes that can be suspended.
const (
	processScaleIn     = "ScaleIn"
	processScaleOut    = "ScaleOut"
	processHealthCheck = "HealthCheck"
)

var processes = []string{processScaleIn, processScaleOut, processHealthCheck, "AlarmNotification", "ScheduledAction"}

// group is a scaling group and its scaling configuration.
type group struct {
	Pool
	// scaling is what the group belongs to.
	scaling *Scaling
	seq     uint64
	created time.Time
	// configID is empty where the group has no scaling configuration.
	configID string
	members  cloud.Roster[*member]
	// listed are those that DescribeScalingInstances shows.
	listed roll
	// states counts members by lifecycle state.
	states map[string]int
	// history lists activities, oldest first; running those in progress.
	history []*activity
	running []*activity
	// healing says that a look at the group's size is on the agenda.
	healing bool
	// unreplaced are members with a notice whose replacement waits for its turn.
	unreplaced []*member
}

func (g *group) Ordinal() uint64 { return g.seq }

// PutGroup adds a group, or changes one without touching its instances. The pool has to be valid.
func (s *Scaling) PutGroup(p Pool) {
	p = p.withDefaults()
	p.Tags, p.ConfigurationTags = maps.Clone(p.Tags), maps.Clone(p.ConfigurationTags)
	p.SuspendedProcesses = slices.Clone(p.SuspendedProcesses)
	g, known := s.groupByID[p.ID]
	if !known {
		g = &group{scaling: s, seq: s.cloud.Ordinal(), created: s.cloud.Clock.Now(), states: map[string]int{}}
		s.groups.Add(g)
		s.groupByID[p.ID] = g
	}
	g.Pool = p
	if len(p.InstanceTypes) > 0 && g.configID == "" {
		g.configID = s.cloud.NewID("asc-")
	} else if len(p.InstanceTypes) == 0 {
		g.configID = ""
	}
	if !known && p.Instances > 0 {
		g.furnish(p.Instances)
	}
	g.lookAfter()
}

// furnish gives a new group instances that have been there since before the world began.
func (g *group) furnish(count int) {
	s := g.scaling
	a := g.newActivity(purchaseOf(count), "The world begins with these instances.")
	a.aged = true
	a.buy(s.cloud.Clock.Now())
	a.finish(s.cloud.Clock.Now())
}

// DeleteGroup releases all instances of a group at once and forgets it; false where there is none.
func (s *Scaling) DeleteGroup(id string) bool {
	g, known := s.groupByID[id]
	if !known {
		return false
	}
	for _, i := range slices.Clone(g.members.Items) {
		s.compute.Release(i.Instance)
		i.detach()
	}
	for _, a := range slices.Clone(g.running) {
		a.end(activityFailed, s.cloud.Clock.Now())
	}
	for _, r := range slices.Clone(s.rules.Items) {
		if r.group == g {
			s.deleteRule(r)
		}
	}
	g.LifecycleState = groupDeleting
	s.groups.Remove(g)
	delete(s.groupByID, g.ID)
	return true
}

// TagsOf returns the tags of a scaling group, nil where there is none.
func (s *Scaling) TagsOf(id string) map[string]string {
	if g, known := s.groupByID[id]; known {
		return maps.Clone(g.Tags)
	}
	return nil
}

// SetGroupTags replaces the tags of a scaling group; false where there is none.
func (s *Scaling) SetGroupTags(id string, tags map[string]string) bool {
	g, known := s.groupByID[id]
	if known {
		g.Tags = maps.Clone(tags)
	}
	return known
}

// SetConfigurationTags replaces the tags of a scaling configuration; false where there is no such group.
func (s *Scaling) SetConfigurationTags(id string, tags map[string]string) bool {
	g, known := s.groupByID[id]
	if known {
		g.ConfigurationTags = maps.Clone(tags)
	}
	return known
}

// capacity is how many instances the group has, those being removed not counted.
func (g *group) capacity() int {
	return g.members.Len() - g.states[stateRemoving]
}

// expected is its capacity once all activities in progress have ended well.
func (g *group) expected() int {
	n := g.capacity()
	for _, a := range g.running {
		n += a.outstanding()
	}
	return n
}

// stable is how many instances are neither on their way in nor on their way out.
func (g *group) stable() int {
	return g.states[stateInService] + g.states[stateProtected] + g.states[stateStandby]
}

func (g *group) spotCount() (n int) {
	for _, i := range g.members.Items {
		if i.IsSpot() {
			n++
		}
	}
	return n
}

// target is the size that adjustments start from.
func (g *group) target() int {
	s := g.scaling
	switch {
	case g.DesiredCapacity == nil:
		return g.expected()
	case s.cloud.Temper.Expectation:
		return g.stable()
	}
	return *g.DesiredCapacity
}

func (g *group) suspended(process string) bool {
	return g.SystemSuspended || slices.Contains(g.SuspendedProcesses, process)
}

// clamp keeps a size between the group's minimum and maximum.
func (g *group) clamp(size int) int { return max(g.MinSize, min(g.MaxSize, size)) }
