package alisim

import (
	"fmt"
	"time"
)

// newRemoval begins a scale-in of these instances.
func (c *cloud) newRemoval(g *group, victims []*instance, cause string) *activity {
	a := c.newActivity(g, purchase{}, cause)
	a.victims = victims
	for _, i := range victims {
		i.enter(stateRemoving)
	}
	c.later(c.world.ActivityDelay.Duration, func(now time.Time) { c.remove(a, now) })
	return a
}

// remove releases the victims and closes the activity.
func (c *cloud) remove(a *activity, now time.Time) {
	if a.status != activityInProgress {
		return
	}
	for _, i := range a.victims {
		c.release(i)
		c.detach(i)
		a.removed = append(a.removed, i.id)
	}
	c.end(a, activitySuccessful, now)
}

// oldest returns the members that a scale-in by number removes, those that serve before those that boot.
func (g *group) oldest(count int) []*instance {
	var victims []*instance
	for _, state := range []string{stateInService, statePending} {
		for _, i := range g.members.items {
			if len(victims) < count && i.lifecycle == state {
				victims = append(victims, i)
			}
		}
	}
	return victims
}

// scale moves the group's size by delta within its limits. It returns the activity, which is rejected where the limits
// leave nothing to do, and nil where only the desired capacity had to change.
func (c *cloud) scale(g *group, delta int, p purchase, cause string) *activity {
	from := g.target()
	to := g.clamp(from + delta)
	if to == from || to < from && g.suspended(processScaleIn) {
		a := c.newActivity(g, purchase{}, cause)
		c.reject(a, g.whyUnchanged(delta))
		return a
	}
	if g.DesiredCapacity != nil {
		g.DesiredCapacity = &to
	}
	if to > from {
		p.count = to - from
		a := c.newActivity(g, p, cause)
		c.schedule(a)
		return a
	}
	victims := g.oldest(g.expected() - to)
	if len(victims) == 0 {
		c.lookAfter(g)
		return nil
	}
	return c.newRemoval(g, victims, cause)
}

func (g *group) whyUnchanged(delta int) *failure {
	switch {
	case delta > 0:
		return fail(codeAboveMax, "Scaling group %q is at its maximum of %d instances.", g.ID, g.MaxSize)
	case delta < 0 && g.suspended(processScaleIn):
		return fail(codeSuspended, "Process ScaleIn of scaling group %q is suspended.", g.ID)
	case delta < 0:
		return fail(codeBelowMin, "Scaling group %q is at its minimum of %d instances.", g.ID, g.MinSize)
	}
	return fail(codeNoChange, "Scaling group %q has the requested size already.", g.ID)
}

func causeOf(r *request, from, delta int) string {
	return fmt.Sprintf("%s executed action %s, changing the Total Capacity from %d to %d.", r.caller.ARN, r.action, from, from+delta)
}
