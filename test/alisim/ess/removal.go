package ess

import (
	"fmt"
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// newRemoval begins a scale-in of these instances.
func (s *Scaling) newRemoval(g *group, victims []*member, cause string) *activity {
	a := s.newActivity(g, purchase{}, cause)
	a.victims = victims
	for _, i := range victims {
		i.enter(stateRemoving)
	}
	s.cloud.Later(s.cloud.Takes.Removal, func(now time.Time) { s.remove(a, now) })
	return a
}

// remove releases the victims and closes the activity.
func (s *Scaling) remove(a *activity, now time.Time) {
	if a.status != activityInProgress {
		return
	}
	for _, i := range a.victims {
		s.compute.Release(i.Instance)
		s.detach(i)
		a.removed = append(a.removed, i.ID)
	}
	s.end(a, activitySuccessful, now)
}

// oldest returns the members that a scale-in by number removes, those that serve before those that boot.
func (g *group) oldest(count int) []*member {
	var victims []*member
	for _, state := range []string{stateInService, statePending} {
		for _, i := range g.members.Items {
			if len(victims) < count && i.lifecycle == state {
				victims = append(victims, i)
			}
		}
	}
	return victims
}

// scale moves the group's size by delta within its limits. It returns the activity, which is rejected where the limits
// leave nothing to do, and nil where only the desired capacity had to change.
func (s *Scaling) scale(g *group, delta int, p purchase, cause string) *activity {
	from := g.target()
	to := g.clamp(from + delta)
	if to == from || to < from && g.suspended(processScaleIn) {
		a := s.newActivity(g, purchase{}, cause)
		s.reject(a, g.whyUnchanged(delta))
		return a
	}
	if g.DesiredCapacity != nil {
		g.DesiredCapacity = &to
	}
	if to > from {
		p.count = to - from
		a := s.newActivity(g, p, cause)
		s.schedule(a)
		return a
	}
	victims := g.oldest(g.expected() - to)
	if len(victims) == 0 {
		s.lookAfter(g)
		return nil
	}
	return s.newRemoval(g, victims, cause)
}

func (g *group) whyUnchanged(delta int) *protocol.Failure {
	switch {
	case delta > 0:
		return protocol.Fail(codeAboveMax, "Scaling group %q is at its maximum of %d instances.", g.ID, g.MaxSize)
	case delta < 0 && g.suspended(processScaleIn):
		return protocol.Fail(codeSuspended, "Process ScaleIn of scaling group %q is suspended.", g.ID)
	case delta < 0:
		return protocol.Fail(codeBelowMin, "Scaling group %q is at its minimum of %d instances.", g.ID, g.MinSize)
	}
	return protocol.Fail(codeNoChange, "Scaling group %q has the requested size already.", g.ID)
}

func causeOf(r *protocol.Request, from, delta int) string {
	return fmt.Sprintf("%s executed action %s, changing the Total Capacity from %d to %d.", r.Caller.ARN, r.Action, from, from+delta)
}
