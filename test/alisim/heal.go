package alisim

import "time"

// lookAfter puts a health check of the group on the agenda, unless one is.
func (c *cloud) lookAfter(g *group) {
	if g.healing {
		return
	}
	g.healing = true
	c.later(c.world.HealthCheckDelay.Duration, func(now time.Time) {
		g.healing = false
		if c.groupByID[g.ID] == g {
			c.checkHealth(g, now)
			c.heal(g)
		}
	})
}

// checkHealth takes unhealthy members off the group and releases them.
func (c *cloud) checkHealth(g *group, now time.Time) {
	if g.HealthCheckType == healthCheckNone || g.suspended(processHealthCheck) || g.LifecycleState != groupActive {
		return
	}
	var dead []*instance
	for _, i := range g.members.items {
		if !i.healthy() && i.lifecycle != stateRemoving {
			dead = append(dead, i)
		}
	}
	if len(dead) == 0 {
		return
	}
	a := c.newActivity(g, purchase{}, "Unhealthy instances were found and are removed.")
	a.parallel, a.victims = true, dead
	for _, i := range dead {
		c.release(i)
		c.detach(i)
		a.removed = append(a.removed, i.id)
	}
	c.end(a, activitySuccessful, now)
}

// heal buys what the group lacks of its minimum or desired capacity, and removes what it has above, behind the back of
// whoever else manages the group. A purchase that comes to nothing is tried again.
func (c *cloud) heal(g *group) {
	if g.LifecycleState != groupActive || g.SystemSuspended || len(g.running) > 0 {
		return
	}
	want, have := g.clamp(g.capacity()), g.capacity()
	if g.DesiredCapacity != nil {
		want = g.clamp(*g.DesiredCapacity)
	}
	switch {
	case have < want && !g.suspended(processScaleOut):
		a := c.newActivity(g, purchaseOf(want-have), "The Total Capacity is below the expected number of instances.")
		a.parallel = true
		c.schedule(a)
	case have > want && !g.suspended(processScaleIn):
		c.newRemoval(g, g.oldest(have-want), "The Total Capacity is above the expected number of instances.").parallel = true
	}
}

// remedy buys the replacement of a doomed spot instance at its notice. It may exceed the group's maximum for as long as
// both exist.
func (c *cloud) remedy(i *instance) {
	g := i.group
	if !g.SpotInstanceRemedy || !i.member || g.suspended(processScaleOut) || g.LifecycleState != groupActive {
		return
	}
	a := c.newActivity(g, purchaseOf(1), "A preemptible instance is about to be reclaimed and is replaced.")
	a.parallel, a.replaces = true, i
	c.schedule(a)
}
