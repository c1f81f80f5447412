package scaling

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
)

// CheckSoon puts a health check of the group on the agenda, unless one is.
func (g *Group) CheckSoon() {
	s := g.scaling
	if g.healing {
		return
	}
	g.healing = true
	s.Cloud.Later(s.Cloud.Takes.HealthCheck, func(now time.Time) {
		g.healing = false
		if s.groupByID[g.ID] == g {
			g.checkHealth(now)
			g.heal()
		}
	})
}

// checkHealth takes unhealthy members off the group and releases them.
func (g *Group) checkHealth(now time.Time) {
	s := g.scaling
	if g.HealthCheckType == HealthCheckNone || g.Suspended(ProcessHealthCheck) || g.LifecycleState != GroupActive {
		return
	}
	var dead []*Member
	for _, i := range g.Members.Items {
		if !i.Healthy() && !i.missedByCheck() {
			dead = append(dead, i)
		}
	}
	if len(dead) == 0 || g.taken() {
		return // the end of what is running brings the next look
	}
	const cause = "Unhealthy instances were found and are removed."
	if s.Cloud.Temper.OneAtATime {
		g.Remove(dead, cause, nil)
		return
	}
	a := g.newActivity(Purchase{}, cause)
	a.Parallel, a.Victims = true, dead
	for _, i := range dead {
		s.Compute.Release(i.Instance)
		i.detach()
		a.Removed = append(a.Removed, i.ID)
	}
	a.end(ActivitySuccessful, now)
}

// missedByCheck says whether a health check passes over an instance: one in these states keeps its health status while it
// is stopped or restarts (Alibaba Cloud, SetInstancesProtection and EnterStandby).
func (i *Member) missedByCheck() bool {
	switch i.Lifecycle {
	case StateRemoving:
		return true
	case StateProtected, StateStandby, StateStopped:
		return i.Status != ecs.Released
	}
	return false
}

// heal buys what the group lacks of its minimum or desired capacity, and removes what it has above, behind the back of
// whoever else manages the group. A purchase that comes to nothing is tried again.
func (g *Group) heal() {
	if g.LifecycleState != GroupActive || g.SystemSuspended || len(g.running) > 0 {
		return
	}
	want, have := g.Clamp(g.Capacity()), g.Capacity()
	if g.DesiredCapacity != nil {
		want = g.Clamp(*g.DesiredCapacity)
	}
	switch {
	case have < want && !g.Suspended(ProcessScaleOut):
		a := g.newActivity(purchaseOf(want-have), "The Total Capacity is below the expected number of instances.")
		a.Parallel = true
		a.schedule()
	case have > want && !g.Suspended(ProcessScaleIn):
		if victims := g.oldest(have - want); len(victims) > 0 {
			g.Remove(victims, "The Total Capacity is above the expected number of instances.", nil).Parallel = true
		}
	default:
		g.exchange()
	}
}

// exchange buys a spot instance in place of a pay-as-you-go one that serves, whatever runs on that. It may exceed the group's
// maximum for as long as both exist.
// Source: aliyun-openapi-meta ess-20220222, CreateScalingGroup CapacityOptions.SpotAutoReplaceOnDemand; GUESS: one at a time, at a
// health check, without regard to the maximum.
func (g *Group) exchange() {
	s := g.scaling
	if !g.SpotAutoReplaceOnDemand || g.Suspended(ProcessScaleOut) || g.Suspended(ProcessScaleIn) {
		return
	}
	at := slices.IndexFunc(g.Members.Items, func(i *Member) bool { return i.Lifecycle == StateInService && i.SpotStrategy == ecs.NoSpot })
	purchase := Purchase{Count: 1, Strategy: ecs.SpotAsPriceGo}
	if at < 0 || len(g.Plan(purchase, s.Cloud.Clock.Now())) == 0 {
		return
	}
	a := g.newActivity(purchase, "A pay-as-you-go instance is about to be replaced by a preemptible one.")
	a.Parallel, a.exchanges = true, g.Members.Items[at]
	a.schedule()
}

// remedy buys the replacement of a reclaimed spot instance at its notice. It may exceed the group's maximum for as long as
// both exist.
func (i *Member) remedy() {
	s := i.Group.scaling
	g := i.Group
	if !g.SpotInstanceRemedy || i.Lifecycle == "" || g.Suspended(ProcessScaleOut) || g.LifecycleState != GroupActive {
		return
	}
	if s.Cloud.Temper.PolicyDecides && g.MultiAZPolicy != PolicyCost {
		return
	}
	if g.taken() {
		g.unreplaced = append(g.unreplaced, i)
		return
	}
	a := g.newActivity(purchaseOf(1), "A preemptible instance is about to be reclaimed and is replaced.")
	a.Parallel, a.replaces = true, i
	a.schedule()
}

// replaceWaiting goes on with the replacements that had to wait for the end of an activity.
func (g *Group) replaceWaiting() {
	waiting := g.unreplaced
	g.unreplaced = nil
	for _, i := range waiting {
		i.remedy()
	}
}
