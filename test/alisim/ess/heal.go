package ess

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
)

// lookAfter puts a health check of the group on the agenda, unless one is.
func (g *group) lookAfter() {
	s := g.scaling
	if g.healing {
		return
	}
	g.healing = true
	s.cloud.Later(s.cloud.Takes.HealthCheck, func(now time.Time) {
		g.healing = false
		if s.groupByID[g.ID] == g {
			g.checkHealth(now)
			g.heal()
		}
	})
}

// checkHealth takes unhealthy members off the group and releases them.
func (g *group) checkHealth(now time.Time) {
	s := g.scaling
	if g.HealthCheckType == healthCheckNone || g.suspended(processHealthCheck) || g.LifecycleState != groupActive {
		return
	}
	var dead []*member
	for _, i := range g.members.Items {
		if !i.Healthy() && !i.missedByCheck() {
			dead = append(dead, i)
		}
	}
	if len(dead) == 0 || g.taken() {
		return // the end of what is running brings the next look
	}
	const cause = "Unhealthy instances were found and are removed."
	if s.cloud.Temper.OneAtATime {
		g.newRemoval(dead, cause, nil)
		return
	}
	a := g.newActivity(purchase{}, cause)
	a.parallel, a.victims = true, dead
	for _, i := range dead {
		s.compute.Release(i.Instance)
		i.detach()
		a.removed = append(a.removed, i.ID)
	}
	a.end(activitySuccessful, now)
}

// missedByCheck says whether a health check passes over an instance: one in these states keeps its health status while it
// is stopped or restarts (Alibaba Cloud, SetInstancesProtection and EnterStandby).
func (i *member) missedByCheck() bool {
	switch i.lifecycle {
	case stateRemoving:
		return true
	case stateProtected, stateStandby, stateStopped:
		return i.Status != ecs.Released
	}
	return false
}

// heal buys what the group lacks of its minimum or desired capacity, and removes what it has above, behind the back of
// whoever else manages the group. A purchase that comes to nothing is tried again.
func (g *group) heal() {
	if g.LifecycleState != groupActive || g.SystemSuspended || len(g.running) > 0 {
		return
	}
	want, have := g.clamp(g.capacity()), g.capacity()
	if g.DesiredCapacity != nil {
		want = g.clamp(*g.DesiredCapacity)
	}
	switch {
	case have < want && !g.suspended(processScaleOut):
		a := g.newActivity(purchaseOf(want-have), "The Total Capacity is below the expected number of instances.")
		a.parallel = true
		a.schedule()
	case have > want && !g.suspended(processScaleIn):
		if victims := g.oldest(have - want); len(victims) > 0 {
			g.newRemoval(victims, "The Total Capacity is above the expected number of instances.", nil).parallel = true
		}
	}
}

// remedy buys the replacement of a reclaimed spot instance at its notice. It may exceed the group's maximum for as long as
// both exist.
func (i *member) remedy() {
	s := i.group.scaling
	g := i.group
	if !g.SpotInstanceRemedy || i.lifecycle == "" || g.suspended(processScaleOut) || g.LifecycleState != groupActive {
		return
	}
	if s.cloud.Temper.PolicyDecides && g.MultiAZPolicy != policyCost {
		return
	}
	if g.taken() {
		g.unreplaced = append(g.unreplaced, i)
		return
	}
	a := g.newActivity(purchaseOf(1), "A preemptible instance is about to be reclaimed and is replaced.")
	a.parallel, a.replaces = true, i
	a.schedule()
}

// replaceWaiting goes on with the replacements that had to wait for the end of an activity.
func (g *group) replaceWaiting() {
	waiting := g.unreplaced
	g.unreplaced = nil
	for _, i := range waiting {
		i.remedy()
	}
}
