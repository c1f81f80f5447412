package scaling

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
)

// InstanceView is an instance that exists, or that its scaling group believes to exist.
type InstanceView struct {
	ID             string `json:"id"`
	ScalingGroupID string `json:"scalingGroupId"`
	ActivityID     string `json:"activityId"`
	InstanceType   string `json:"instanceType"`
	Zone           string `json:"zone"`
	VSwitchID      string `json:"vswitchId"`
	SpotStrategy   string `json:"spotStrategy"`
	// Lifecycle is the state in the scaling group, empty where it left the group.
	Lifecycle string `json:"lifecycle,omitempty"`
	// Status is the ECS status, or "Released".
	Status  string    `json:"status"`
	Created time.Time `json:"created"`
	// ProtectedUntil is the end of the time in which the market does not reclaim it.
	ProtectedUntil time.Time `json:"protectedUntil,omitzero"`
	// Deadline is when it will be released; zero without notice.
	Deadline time.Time `json:"deadline,omitzero"`
}

// Recycling says whether the instance has its notice and still runs.
func (v InstanceView) Recycling() bool { return !v.Deadline.IsZero() && v.Status != ecs.Released }

// GroupView is a scaling group.
type GroupView struct {
	// Pool is as it is now: actions change limits, desired capacity and suspended Processes.
	Pool
	ConfigurationID string `json:"configurationId,omitempty"`
	// Total counts members; Spot those that are spot instances; States members by lifecycle state.
	Total  int            `json:"total"`
	Spot   int            `json:"spot"`
	States map[string]int `json:"states"`
	// Activities are newest first.
	Activities []ActivityView `json:"activities"`
}

// ActivityView is a scaling activity.
type ActivityView struct {
	ID        string   `json:"id"`
	Status    string   `json:"status"`
	Cause     string   `json:"cause"`
	ErrorCode string   `json:"errorCode,omitempty"`
	Asked     int      `json:"asked"`
	Created   []string `json:"created,omitempty"`
	Removed   []string `json:"removed,omitempty"`
	// RolledBack were created and released again; Created is without them.
	RolledBack []string  `json:"rolledBack,omitempty"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"`
}

// Instances returns all instances, oldest first, those included that are released but still members of their group.
func (s *Engine) Instances() []InstanceView {
	var all cloud.Roster[*ecs.Instance]
	all.Items = slices.Clone(s.Compute.Instances())
	for _, i := range s.members.Items {
		all.Add(i.Instance)
	}
	list := make([]InstanceView, 0, all.Len())
	for _, i := range all.Items {
		list = append(list, s.view(i))
	}
	return list
}

// Instance returns an instance; false where there is none of that ID.
func (s *Engine) Instance(id string) (InstanceView, bool) {
	if m, is := s.memberBy[id]; is {
		return s.view(m.Instance), true
	}
	if i, is := s.Compute.Instance(id); is {
		return s.view(i), true
	}
	return InstanceView{}, false
}

// Groups returns all scaling groups, oldest first.
func (s *Engine) Groups() (list []GroupView) {
	for _, g := range s.groups.Items {
		list = append(list, g.view())
	}
	return list
}

// Group returns a scaling group; false where there is none of that ID.
func (s *Engine) Group(id string) (GroupView, bool) {
	g, known := s.groupByID[id]
	if !known {
		return GroupView{}, false
	}
	return g.view(), true
}

func (s *Engine) view(i *ecs.Instance) InstanceView {
	v := InstanceView{
		ID: i.ID, ScalingGroupID: i.GroupID, InstanceType: i.Type.ID, Zone: i.VSwitch.Zone, VSwitchID: i.VSwitch.ID,
		SpotStrategy: i.SpotStrategy, Status: i.Status, Created: i.Created, ProtectedUntil: i.ProtectedUntil, Deadline: i.Deadline,
	}
	if m, is := s.memberBy[i.ID]; is {
		v.ScalingGroupID, v.ActivityID, v.Lifecycle = m.Group.ID, m.ActivityID, m.Lifecycle
	}
	return v
}

func (g *Group) view() GroupView {
	v := GroupView{Pool: g.Pool.clone(), ConfigurationID: g.ConfigID, Total: g.Members.Len(), Spot: g.SpotCount(), States: map[string]int{}}
	for state, n := range g.States {
		if n > 0 {
			v.States[state] = n
		}
	}
	for _, a := range slices.Backward(g.History) {
		v.Activities = append(v.Activities, a.view())
	}
	return v
}

func (a *Activity) view() ActivityView {
	v := ActivityView{
		ID: a.ID, Status: a.Status, Cause: a.Cause, Asked: a.Purchase.Count, Removed: slices.Clone(a.Removed), RolledBack: slices.Clone(a.RolledBack),
		Started: a.Started, Ended: a.Ended,
	}
	for _, i := range a.Created {
		v.Created = append(v.Created, i.ID)
	}
	if a.Failure != nil {
		v.ErrorCode = a.Failure.Code
	}
	return v
}
