package ess

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// newRemoval begins a scale-in of these instances. It waits for those that do not stop until stopTimeout has passed, and
// for ever where that is nil.
func (g *group) newRemoval(victims []*member, cause string, stopTimeout *time.Duration) *activity {
	s := g.scaling
	a := g.newActivity(purchase{}, cause)
	a.victims, a.stopTimeout = victims, stopTimeout
	for _, i := range victims {
		i.enter(stateRemoving)
	}
	takes := s.cloud.Takes.Removal
	if stopTimeout != nil && awaitsStop(s.cloud.Temper, victims) {
		takes += *stopTimeout
	}
	s.cloud.Later(takes, func(now time.Time) { a.remove(now) })
	return a
}

// awaitsStop says whether a scale-in has to wait for instances that do not stop.
func awaitsStop(rules temper.Rules, victims []*member) bool {
	return rules.AwaitStop && slices.ContainsFunc(victims, func(i *member) bool { return i.hangs && i.Healthy() })
}

// try has some of the instances that a client wants removed resist, one in so many as the temper says.
func (s *Scaling) try(victims []*member) {
	rules := s.cloud.Temper
	for _, i := range victims {
		if i.tried {
			continue
		}
		i.tried = true
		s.removed++
		i.hangs = rules.HangOneIn > 0 && s.removed%rules.HangOneIn == 0
		i.stays = rules.StayOneIn > 0 && s.removed%rules.StayOneIn == rules.StayOneIn/2
	}
}

// remove releases the victims and closes the activity. Those that stay serve on.
func (a *activity) remove(now time.Time) {
	s := a.group.scaling
	if a.status != activityInProgress {
		return
	}
	stuck := a.stopTimeout == nil && awaitsStop(s.cloud.Temper, a.victims)
	for _, i := range a.victims {
		if i.lifecycle != stateRemoving {
			continue // its group was deleted meanwhile
		}
		if stuck || i.stays {
			i.stays = false
			i.enter(i.last)
			a.stayed = append(a.stayed, i.ID)
			continue
		}
		if a.recycle {
			i.enter(stateStopped)
			s.compute.Pause(i.Instance)
			continue
		}
		s.compute.Release(i.Instance)
		i.detach()
		a.removed = append(a.removed, i.ID)
	}
	switch {
	case stuck:
		a.failure = protocol.Fail(codeNotStopped, "The scale-in was rolled back because ECS instances did not stop.")
	case len(a.stayed) > 0:
		a.failure = protocol.Fail(codeNotGone, "%d ECS instances could not be released.", len(a.stayed))
	}
	switch {
	case len(a.stayed) > 0 && len(a.removed) == 0:
		a.end(activityFailed, now)
	case len(a.stayed) > 0, len(a.invalid) > 0 && s.cloud.Temper.WarnOfInvalid:
		a.end(activityWarning, now)
	default:
		a.end(activitySuccessful, now)
	}
}

// oldest returns the members that a scale-in by number removes, those that serve before those that boot. It passes over
// the protected and those on standby (Alibaba Cloud, SetInstancesProtection and EnterStandby).
func (g *group) oldest(count int) []*member {
	s := g.scaling
	states := []string{stateInService, statePending}
	if s.cloud.Temper.PendingStay {
		states = states[:1]
	}
	var victims []*member
	for _, state := range states {
		for _, i := range g.members.Items {
			if len(victims) < count && i.lifecycle == state {
				victims = append(victims, i)
			}
		}
	}
	return victims
}
