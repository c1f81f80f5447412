package alisim

import (
	"maps"
	"slices"
	"time"
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
	seq     uint64
	created time.Time
	// configID is empty where the group has no scaling configuration.
	configID string
	members  roster[*instance]
	// states counts members by lifecycle state, spot those that are spot instances.
	states map[string]int
	spot   int
	// history lists activities, oldest first; running those in progress.
	history []*activity
	running []*activity
	// healing says that a look at the group's size is on the agenda.
	healing bool
}

func (g *group) ordinal() uint64 { return g.seq }

// putGroup adds a group, or changes one without touching its instances.
func (c *cloud) putGroup(p Pool) *group {
	p = p.withDefaults()
	p.Tags, p.ConfigurationTags = maps.Clone(p.Tags), maps.Clone(p.ConfigurationTags)
	p.SuspendedProcesses = slices.Clone(p.SuspendedProcesses)
	g, known := c.groupByID[p.ID]
	if !known {
		g = &group{seq: c.ordinal(), created: c.clock.Now(), states: map[string]int{}}
		c.groups.add(g)
		c.groupByID[p.ID] = g
	}
	g.Pool = p
	if len(p.InstanceTypes) > 0 && g.configID == "" {
		g.configID = c.newID("asc-")
	} else if len(p.InstanceTypes) == 0 {
		g.configID = ""
	}
	if !known && p.Instances > 0 {
		c.furnish(g, p.Instances)
	}
	c.lookAfter(g)
	return g
}

// furnish gives a new group instances that have been there since before the world began.
func (c *cloud) furnish(g *group, count int) {
	a := c.newActivity(g, purchaseOf(count), "The world begins with these instances.")
	c.buy(a, c.clock.Now())
	c.finish(a, c.clock.Now())
}

// deleteGroup releases all instances of a group and forgets it.
func (c *cloud) deleteGroup(g *group) {
	for _, i := range slices.Clone(g.members.items) {
		c.release(i)
		c.detach(i)
	}
	for _, a := range slices.Clone(g.running) {
		c.end(a, activityFailed, c.clock.Now())
	}
	for _, r := range slices.Clone(c.rules.items) {
		if r.group == g {
			c.deleteRule(r)
		}
	}
	g.LifecycleState = groupDeleting
	c.groups.remove(g)
	delete(c.groupByID, g.ID)
}

// capacity is how many instances the group has, those being removed not counted.
func (g *group) capacity() int {
	return g.members.len() - g.states[stateRemoving]
}

// expected is its capacity once all activities in progress have ended well.
func (g *group) expected() int {
	n := g.capacity()
	for _, a := range g.running {
		n += a.outstanding()
	}
	return n
}

// target is the size that adjustments start from.
func (g *group) target() int {
	if g.DesiredCapacity != nil {
		return *g.DesiredCapacity
	}
	return g.expected()
}

func (g *group) suspended(process string) bool {
	return g.SystemSuspended || slices.Contains(g.SuspendedProcesses, process)
}

// clamp keeps a size between the group's minimum and maximum.
func (g *group) clamp(size int) int { return max(g.MinSize, min(g.MaxSize, size)) }

// admit refuses an activity that the group's state does not allow.
func (g *group) admit(parallel bool) error {
	if g.LifecycleState != groupActive || g.SystemSuspended {
		return badRequest("IncorrectScalingGroupStatus", "The current status of scaling group %q does not support this action.", g.ID)
	}
	for _, a := range g.running {
		if !parallel || !a.parallel {
			return badRequest(codeInProgress, "You cannot perform this action while scaling activity %s of scaling group %q is in progress.", a.id, g.ID)
		}
	}
	return nil
}

// lookup finds the group that a writing action names.
func (c *cloud) lookup(r *request) (*group, error) {
	id, err := r.required("ScalingGroupId")
	if err != nil {
		return nil, err
	}
	g, known := c.groupByID[id]
	if !known {
		return nil, groupNotFound(id)
	}
	return g, nil
}
