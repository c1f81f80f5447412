package ess

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
)

// Lifecycle states of an instance in its scaling group.
const (
	statePending   = "Pending"
	stateInService = "InService"
	stateRemoving  = "Removing"
)

// member is an instance in its place in a scaling group.
type member struct {
	*ecs.Instance
	group      *group
	activityID string
	configID   string
	// lifecycle is empty once it left the group.
	lifecycle string
}

// launch buys an instance as a pending member of the activity's group.
func (s *Scaling) launch(a *activity, o ecs.Offer, now time.Time) *member {
	g := a.group
	i := &member{
		Instance: s.compute.Launch(o, ecs.Launch{Name: "ESS-" + g.ID, GroupID: g.ID, SpotDuration: *g.SpotDuration}, now),
		group:    g, activityID: a.id, configID: g.configID,
	}
	s.memberBy[i.ID] = i
	s.members.Add(i)
	g.members.Add(i)
	if i.IsSpot() {
		g.spot++
		s.spot++
	}
	i.enter(statePending)
	return i
}

// enter changes the lifecycle state.
func (i *member) enter(state string) {
	if i.lifecycle != "" {
		i.group.states[i.lifecycle]--
	}
	i.lifecycle = state
	if state != "" {
		i.group.states[state]++
	}
}

// start lets a pending instance run and serve.
func (s *Scaling) start(i *member) {
	if i.Status == ecs.Pending && i.lifecycle == statePending {
		i.enter(stateInService)
	}
	s.compute.Start(i.Instance)
}

// detach takes the instance off its group's list.
func (s *Scaling) detach(i *member) {
	if i.lifecycle == "" {
		return
	}
	i.enter("")
	i.group.members.Remove(i)
	s.members.Remove(i)
	delete(s.memberBy, i.ID)
	if i.IsSpot() {
		i.group.spot--
		s.spot--
	}
}

// Noticed implements ecs.Watcher.
func (s *Scaling) Noticed(i *ecs.Instance) {
	if m, is := s.memberBy[i.ID]; is {
		s.remedy(m)
	}
}

// Unhealthy implements ecs.Watcher.
func (s *Scaling) Unhealthy(i *ecs.Instance) {
	if m, is := s.memberBy[i.ID]; is {
		s.lookAfter(m.group)
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
