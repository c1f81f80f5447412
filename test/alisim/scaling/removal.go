package scaling

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// Remove begins a scale-in of these instances. It waits for those that do not stop until stopTimeout has passed, and
// for ever where that is nil.
func (g *Group) Remove(victims []*Member, cause string, stopTimeout *time.Duration) *Activity {
	s := g.scaling
	a := g.newActivity(Purchase{}, cause)
	a.Victims, a.stopTimeout = victims, stopTimeout
	for _, i := range victims {
		i.Enter(StateRemoving)
	}
	takes := s.Cloud.Takes.Removal
	if stopTimeout != nil && awaitsStop(s.Cloud.Temper, victims) {
		takes += *stopTimeout
	}
	s.Cloud.Later(takes, func(now time.Time) { a.remove(now) })
	return a
}

// awaitsStop says whether a scale-in has to wait for instances that do not stop.
func awaitsStop(rules temper.Rules, victims []*Member) bool {
	return rules.AwaitStop && slices.ContainsFunc(victims, func(i *Member) bool { return i.hangs && i.Healthy() })
}

// DrawObstacles has some of the instances that a client wants removed resist, one in so many as the temper says.
func (s *Engine) DrawObstacles(victims []*Member) {
	rules := s.Cloud.Temper
	for _, i := range victims {
		if i.tried {
			continue
		}
		i.tried = true
		s.removals++
		i.hangs = rules.HangOneIn > 0 && s.removals%rules.HangOneIn == 0
		i.stays = rules.StayOneIn > 0 && s.removals%rules.StayOneIn == rules.StayOneIn/2
	}
}

// remove releases the victims and closes the activity. Those that stay serve on.
func (a *Activity) remove(now time.Time) {
	s := a.Group.scaling
	if a.Status != ActivityInProgress {
		return
	}
	stuck := a.stopTimeout == nil && awaitsStop(s.Cloud.Temper, a.Victims)
	for _, i := range a.Victims {
		if i.Lifecycle != StateRemoving {
			continue // its group was deleted meanwhile
		}
		if stuck || i.stays {
			i.stays = false
			i.Enter(i.last)
			a.Stayed = append(a.Stayed, i.ID)
			continue
		}
		if a.Recycle {
			i.Enter(StateStopped)
			s.Compute.Pause(i.Instance)
			continue
		}
		if !i.attached || i.entrusted || !s.Cloud.Temper.EntrustedOnly {
			s.Compute.Release(i.Instance)
		}
		i.detach()
		a.Removed = append(a.Removed, i.ID)
	}
	switch {
	case stuck:
		a.Failure = protocol.Fail(CodeNotStopped, "The scale-in was rolled back because ECS instances did not stop.")
	case len(a.Stayed) > 0:
		a.Failure = protocol.Fail(CodeNotGone, "%d ECS instances could not be released.", len(a.Stayed))
	}
	switch {
	case len(a.Stayed) > 0 && len(a.Removed) == 0:
		a.end(ActivityFailed, now)
	case len(a.Stayed) > 0, len(a.Invalid) > 0 && s.Cloud.Temper.WarnOfInvalid:
		a.end(ActivityWarning, now)
	default:
		a.end(ActivitySuccessful, now)
	}
}

// oldest returns the members that a scale-in by number removes, those that serve before those that boot. It passes over
// the protected and those on standby (Alibaba Cloud, SetInstancesProtection and EnterStandby).
func (g *Group) oldest(count int) []*Member {
	s := g.scaling
	states := []string{StateInService, StatePending}
	if s.Cloud.Temper.PendingStay {
		states = states[:1]
	}
	var victims []*Member
	for _, state := range states {
		for _, i := range g.Members.Items {
			if len(victims) < count && i.Lifecycle == state {
				victims = append(victims, i)
			}
		}
	}
	return victims
}
