package alisim

import (
	"maps"
	"slices"
	"time"
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
func (v InstanceView) Recycling() bool { return !v.Deadline.IsZero() && v.Status != statusReleased }

// GroupView is a scaling group.
type GroupView struct {
	// Pool is as it is now: actions change limits, desired capacity and suspended processes.
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
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	Cause     string    `json:"cause"`
	ErrorCode string    `json:"errorCode,omitempty"`
	Asked     int       `json:"asked"`
	Created   []string  `json:"created,omitempty"`
	Removed   []string  `json:"removed,omitempty"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended,omitzero"`
}

// RequestView is a request that came in.
type RequestView struct {
	Time    time.Time `json:"time"`
	Service string    `json:"service"`
	Action  string    `json:"action"`
	// Parameters are without the signature, the token and the secret ones.
	Parameters map[string]string `json:"parameters"`
	// Code is the error code of the answer, empty for success; "-" where no answer was given.
	Code      string `json:"code,omitempty"`
	RequestID string `json:"requestId"`
}

func (i *instance) view() InstanceView {
	return InstanceView{
		ID: i.id, ScalingGroupID: i.group.ID, ActivityID: i.activityID, InstanceType: i.typ.ID, Zone: i.vsw.Zone, VSwitchID: i.vsw.ID,
		SpotStrategy: i.spotStrategy, Lifecycle: i.lifecycle, Status: i.status, Created: i.created,
		ProtectedUntil: i.protectedUntil, Deadline: i.deadline,
	}
}

func (g *group) view() GroupView {
	v := GroupView{Pool: g.Pool.clone(), ConfigurationID: g.configID, Total: g.members.len(), Spot: g.spot, States: map[string]int{}}
	for state, n := range g.states {
		if n > 0 {
			v.States[state] = n
		}
	}
	for _, a := range slices.Backward(g.history) {
		v.Activities = append(v.Activities, a.view())
	}
	return v
}

func (a *activity) view() ActivityView {
	v := ActivityView{
		ID: a.id, Status: a.status, Cause: a.cause, Asked: a.purchase.count, Removed: slices.Clone(a.removed),
		Started: a.started, Ended: a.ended,
	}
	for _, i := range a.created {
		v.Created = append(v.Created, i.id)
	}
	if a.failure != nil {
		v.ErrorCode = a.failure.code
	}
	return v
}

// clone copies what the cloud may change.
func (p Pool) clone() Pool {
	p.Tags, p.ConfigurationTags = maps.Clone(p.Tags), maps.Clone(p.ConfigurationTags)
	p.SuspendedProcesses = slices.Clone(p.SuspendedProcesses)
	return p
}
