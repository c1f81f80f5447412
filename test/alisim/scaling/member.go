package scaling

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
)

// Lifecycle states of an instance in its scaling group.
const (
	StatePending   = "Pending"
	StateInService = "InService"
	StateRemoving  = "Removing"
	StateProtected = "Protected"
	StateStandby   = "Standby"
	StateStopped   = "Stopped"
)

// Member is an instance in its place in a scaling group.
type Member struct {
	*ecs.Instance
	Group      *Group
	ActivityID string
	ConfigID   string
	// attached: it was put into the group by AttachInstances, and entrusted: the group releases it when it is removed.
	attached, entrusted bool
	// Lifecycle is empty once it left the group; last is what it was before.
	Lifecycle, last string
	// hangs says that it does not stop by itself, stays that the next try to release it fails, and tried that somebody
	// had it removed.
	hangs, stays, tried bool
}

// launch buys an instance as a pending member of the activity's group.
func (a *Activity) launch(o ecs.Offer, now time.Time) *Member {
	s := a.Group.scaling
	g := a.Group
	i := &Member{
		Instance: s.Compute.Launch(o, ecs.Launch{Name: "ESS-" + g.ID, GroupID: g.ID, SpotDuration: *g.SpotDuration, Aged: a.aged}, now),
		Group:    g, ActivityID: a.ID, ConfigID: g.ConfigID,
	}
	s.memberBy[i.ID] = i
	s.members.Add(i)
	g.Members.Add(i)
	i.Enter(StatePending)
	s.launches++
	if !s.Cloud.Temper.ListLags || a.aged || s.launches%2 == 0 {
		i.list()
	}
	return i
}

// Enter changes the lifecycle state.
func (i *Member) Enter(state string) {
	if i.Lifecycle != "" {
		i.Group.States[i.Lifecycle]--
		i.last = i.Lifecycle
	}
	i.Lifecycle = state
	if state != "" {
		i.Group.States[state]++
	}
}

// start lets a pending instance run and serve.
func (i *Member) start() {
	s := i.Group.scaling
	if i.Status == ecs.Pending && i.Lifecycle == StatePending {
		i.Enter(StateInService)
	}
	s.Compute.Start(i.Instance)
	if _, listed := s.listedBy[i.ID]; !listed {
		s.Cloud.Later(s.Cloud.Takes.ListLag, func(time.Time) { i.list() })
	}
}

// detach takes the instance off its group's list.
func (i *Member) detach() {
	s := i.Group.scaling
	if i.Lifecycle == "" {
		return
	}
	i.Enter("")
	i.Group.Members.Remove(i)
	s.members.Remove(i)
	delete(s.memberBy, i.ID)
	if s.Cloud.Temper.ListLags {
		s.Cloud.Later(s.Cloud.Takes.ListLag, func(time.Time) { i.unlist() })
	} else {
		i.unlist()
	}
}

// ShownState is the lifecycle state that clients are told.
func (i *Member) ShownState() string { return cmp.Or(i.Lifecycle, i.last) }

// SetLifecycle moves an instance between InService, Protected, Standby and Stopped, as SetInstancesProtection,
// EnterStandby and the economical mode do.
func (s *Engine) SetLifecycle(instanceID, state string) error {
	settled := []string{StateInService, StateProtected, StateStandby, StateStopped}
	i, is := s.memberBy[instanceID]
	switch {
	case !is:
		return fmt.Errorf("instance %q is in no scaling group", instanceID)
	case !slices.Contains(settled, state):
		return fmt.Errorf("lifecycle state is one of %q, not %q", settled, state)
	case !slices.Contains(settled, i.Lifecycle):
		return fmt.Errorf("instance %q is %s", instanceID, i.Lifecycle)
	}
	i.Enter(state)
	if state == StateStopped {
		s.Compute.Pause(i.Instance)
	} else {
		s.Compute.Resume(i.Instance)
	}
	return nil
}

// Obstruct keeps an instance from stopping by itself when it is removed (hangs), or makes the next try to release it fail
// (stays); false where it is in no group.
func (s *Engine) Obstruct(instanceID string, hangs, stays bool) bool {
	i, is := s.memberBy[instanceID]
	if is {
		i.hangs, i.stays, i.tried = i.hangs || hangs, i.stays || stays, true
	}
	return is
}

// Noticed implements ecs.Watcher.
func (s *Engine) Noticed(i *ecs.Instance) {
	if m, is := s.memberBy[i.ID]; is {
		m.remedy()
	}
}

// Unhealthy implements ecs.Watcher.
func (s *Engine) Unhealthy(i *ecs.Instance) {
	if m, is := s.memberBy[i.ID]; is {
		m.Group.CheckSoon()
	}
}

// joinsAs is what instances run when they boot, before the name of the pool whose Nodes they become.
const joinsAs = "join "

// UserData returns what instances of a group run when they boot, as its scaling configuration has it.
func UserData(groupID string) string {
	return base64.StdEncoding.EncodeToString([]byte(joinsAs + groupID))
}

// PoolJoined returns the pool that an instance joins by its user data; false if it joins none.
func (s *Engine) PoolJoined(i *ecs.Instance) (Pool, bool) {
	text, err := base64.StdEncoding.DecodeString(i.UserData)
	groupID, joins := strings.CutPrefix(string(text), joinsAs)
	g, known := s.groupByID[groupID]
	if err != nil || !joins || !known {
		return Pool{}, false
	}
	return g.Pool, true
}

// PoolOf returns the pool that an instance is a member of; false where it is in none.
func (s *Engine) PoolOf(instanceID string) (Pool, bool) {
	m, is := s.memberBy[instanceID]
	if !is {
		return Pool{}, false
	}
	return m.Group.Pool, true
}

// Attach begins to put instances into a group. They are members at once and serve when the activity ends.
func (s *Engine) Attach(g *Group, instances []*ecs.Instance, entrusted bool, cause string) *Activity {
	a := g.newActivity(Purchase{}, cause)
	a.attaches = len(instances)
	for _, i := range instances {
		m := &Member{Instance: i, Group: g, ActivityID: a.ID, ConfigID: g.ConfigID, attached: true, entrusted: entrusted}
		s.memberBy[i.ID] = m
		s.members.Add(m)
		g.Members.Add(m)
		m.Enter(StatePending)
		a.Created = append(a.Created, m)
	}
	s.Cloud.Later(s.Cloud.Takes.Activity.Pick(s.Cloud.Random), func(now time.Time) {
		for _, m := range a.Created {
			if m.Lifecycle == StatePending {
				m.Enter(StateInService)
				m.list()
			}
		}
		a.end(ActivitySuccessful, now)
	})
	return a
}

// CreationType says how the member came into its group.
func (i *Member) CreationType() string {
	if i.attached {
		return "Attached"
	}
	return "AutoCreated"
}

// attachment describes an activity that attaches instances. Source: GUESS, the worst: it reads like that of a purchase.
func attachment(count int) string { return fmt.Sprintf("Add %d ECS instances.", count) }
