package ess

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
)

// Lifecycle states of an instance in its scaling group.
const (
	statePending   = "Pending"
	stateInService = "InService"
	stateRemoving  = "Removing"
	stateProtected = "Protected"
	stateStandby   = "Standby"
	stateStopped   = "Stopped"
)

// member is an instance in its place in a scaling group.
type member struct {
	*ecs.Instance
	group      *group
	activityID string
	configID   string
	// lifecycle is empty once it left the group; last is what it was before.
	lifecycle, last string
	// hangs says that it does not stop by itself, stays that the next try to release it fails, and tried that somebody
	// had it removed.
	hangs, stays, tried bool
}

// launch buys an instance as a pending member of the activity's group.
func (a *activity) launch(o ecs.Offer, now time.Time) *member {
	s := a.group.scaling
	g := a.group
	i := &member{
		Instance: s.compute.Launch(o, ecs.Launch{Name: "ESS-" + g.ID, GroupID: g.ID, SpotDuration: *g.SpotDuration, Aged: a.aged}, now),
		group:    g, activityID: a.id, configID: g.configID,
	}
	s.memberBy[i.ID] = i
	s.members.Add(i)
	g.members.Add(i)
	i.enter(statePending)
	s.launched++
	if !s.cloud.Temper.ListLags || a.aged || s.launched%2 == 0 {
		i.list()
	}
	return i
}

// enter changes the lifecycle state.
func (i *member) enter(state string) {
	if i.lifecycle != "" {
		i.group.states[i.lifecycle]--
		i.last = i.lifecycle
	}
	i.lifecycle = state
	if state != "" {
		i.group.states[state]++
	}
}

// start lets a pending instance run and serve.
func (i *member) start() {
	s := i.group.scaling
	if i.Status == ecs.Pending && i.lifecycle == statePending {
		i.enter(stateInService)
	}
	s.compute.Start(i.Instance)
	if _, listed := s.listedBy[i.ID]; !listed {
		s.cloud.Later(s.cloud.Takes.ListLag, func(time.Time) { i.list() })
	}
}

// detach takes the instance off its group's list.
func (i *member) detach() {
	s := i.group.scaling
	if i.lifecycle == "" {
		return
	}
	i.enter("")
	i.group.members.Remove(i)
	s.members.Remove(i)
	delete(s.memberBy, i.ID)
	if s.cloud.Temper.ListLags {
		s.cloud.Later(s.cloud.Takes.ListLag, func(time.Time) { i.unlist() })
	} else {
		i.unlist()
	}
}

// shownState is the lifecycle state that clients are told.
func (i *member) shownState() string { return cmp.Or(i.lifecycle, i.last) }

// SetLifecycle moves an instance between InService, Protected, Standby and Stopped, as SetInstancesProtection,
// EnterStandby and the economical mode do.
func (s *Scaling) SetLifecycle(instanceID, state string) error {
	settled := []string{stateInService, stateProtected, stateStandby, stateStopped}
	i, is := s.memberBy[instanceID]
	switch {
	case !is:
		return fmt.Errorf("instance %q is in no scaling group", instanceID)
	case !slices.Contains(settled, state):
		return fmt.Errorf("lifecycle state is one of %q, not %q", settled, state)
	case !slices.Contains(settled, i.lifecycle):
		return fmt.Errorf("instance %q is %s", instanceID, i.lifecycle)
	}
	i.enter(state)
	if state == stateStopped {
		s.compute.Pause(i.Instance)
	} else {
		s.compute.Resume(i.Instance)
	}
	return nil
}

// Hang keeps an instance from stopping by itself when it is removed, and Stay makes the next try to release it fail; false
// where it is in no group.
func (s *Scaling) Hang(instanceID string) bool { return s.obstruct(instanceID, true, false) }

// Stay is described with Hang.
func (s *Scaling) Stay(instanceID string) bool { return s.obstruct(instanceID, false, true) }

func (s *Scaling) obstruct(instanceID string, hangs, stays bool) bool {
	i, is := s.memberBy[instanceID]
	if is {
		i.hangs, i.stays, i.tried = i.hangs || hangs, i.stays || stays, true
	}
	return is
}

// Noticed implements ecs.Watcher.
func (s *Scaling) Noticed(i *ecs.Instance) {
	if m, is := s.memberBy[i.ID]; is {
		m.remedy()
	}
}

// Unhealthy implements ecs.Watcher.
func (s *Scaling) Unhealthy(i *ecs.Instance) {
	if m, is := s.memberBy[i.ID]; is {
		m.group.lookAfter()
	}
}

// PoolOf returns the pool that an instance is a member of; false where it is in none.
func (s *Scaling) PoolOf(instanceID string) (Pool, bool) {
	m, is := s.memberBy[instanceID]
	if !is {
		return Pool{}, false
	}
	return m.group.Pool, true
}
