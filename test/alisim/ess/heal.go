package ess

import "time"

// lookAfter puts a health check of the group on the agenda, unless one is.
func (s *Scaling) lookAfter(g *group) {
	if g.healing {
		return
	}
	g.healing = true
	s.cloud.Later(s.cloud.Takes.HealthCheck, func(now time.Time) {
		g.healing = false
		if s.groupByID[g.ID] == g {
			s.checkHealth(g, now)
			s.heal(g)
		}
	})
}

// checkHealth takes unhealthy members off the group and releases them.
func (s *Scaling) checkHealth(g *group, now time.Time) {
	if g.HealthCheckType == healthCheckNone || g.suspended(processHealthCheck) || g.LifecycleState != groupActive {
		return
	}
	var dead []*member
	for _, i := range g.members.Items {
		if !i.Healthy() && i.lifecycle != stateRemoving {
			dead = append(dead, i)
		}
	}
	if len(dead) == 0 {
		return
	}
	a := s.newActivity(g, purchase{}, "Unhealthy instances were found and are removed.")
	a.parallel, a.victims = true, dead
	for _, i := range dead {
		s.compute.Release(i.Instance)
		s.detach(i)
		a.removed = append(a.removed, i.ID)
	}
	s.end(a, activitySuccessful, now)
}

// heal buys what the group lacks of its minimum or desired capacity, and removes what it has above, behind the back of
// whoever else manages the group. A purchase that comes to nothing is tried again.
func (s *Scaling) heal(g *group) {
	if g.LifecycleState != groupActive || g.SystemSuspended || len(g.running) > 0 {
		return
	}
	want, have := g.clamp(g.capacity()), g.capacity()
	if g.DesiredCapacity != nil {
		want = g.clamp(*g.DesiredCapacity)
	}
	switch {
	case have < want && !g.suspended(processScaleOut):
		a := s.newActivity(g, purchaseOf(want-have), "The Total Capacity is below the expected number of instances.")
		a.parallel = true
		s.schedule(a)
	case have > want && !g.suspended(processScaleIn):
		s.newRemoval(g, g.oldest(have-want), "The Total Capacity is above the expected number of instances.").parallel = true
	}
}

// remedy buys the replacement of a reclaimed spot instance at its notice. It may exceed the group's maximum for as long as
// both exist.
func (s *Scaling) remedy(i *member) {
	g := i.group
	if !g.SpotInstanceRemedy || i.lifecycle == "" || g.suspended(processScaleOut) || g.LifecycleState != groupActive {
		return
	}
	a := s.newActivity(g, purchaseOf(1), "A preemptible instance is about to be reclaimed and is replaced.")
	a.parallel, a.replaces = true, i
	s.schedule(a)
}
