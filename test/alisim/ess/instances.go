package ess

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

type scalingInstanceJSON struct {
	InstanceId, ScalingGroupId, ScalingConfigurationId, ScalingActivityId string

	LifecycleState, HealthStatus, WarmupState, CreationType string

	InstanceType, ZoneId, SpotStrategy, PrivateIpAddress string
	CreationTime, CreatedTime                            string
	WeightedCapacity, LoadBalancerWeight                 int
	Entrusted                                            bool
}

// instanceActions answers the requests about the instances of scaling groups.
type instanceActions struct{ *scaling.Engine }

func (s instanceActions) scalingJSON(i *scaling.Member) scalingInstanceJSON {
	health := "Healthy"
	if !i.Healthy() {
		health = "Unhealthy"
	}
	j := scalingInstanceJSON{
		InstanceId: i.ID, ScalingGroupId: i.Group.ID, ScalingConfigurationId: i.ConfigID, ScalingActivityId: i.ActivityID,
		LifecycleState: i.ShownState(), HealthStatus: health, WarmupState: "NoNeedWarmup", CreationType: i.CreationType(),
		InstanceType: i.Type.ID, ZoneId: i.VSwitch.Zone, SpotStrategy: i.SpotStrategy, PrivateIpAddress: i.IP,
		CreationTime: i.Created.UTC().Format(protocol.MinuteLayout), CreatedTime: i.Created.UTC().Format(protocol.SecondLayout),
		WeightedCapacity: 1, LoadBalancerWeight: 50,
	}
	if s.Cloud.Temper.BareNewcomers && i.Lifecycle == scaling.StatePending {
		j.InstanceType, j.ZoneId, j.SpotStrategy = "", "", ""
	}
	return j
}

func (s instanceActions) describeScalingInstances(r *protocol.Request) (protocol.Reply, error) {
	pages, err := r.Paging(maxESSInstancesPage)
	if err != nil {
		return nil, err
	}
	found, spot, err := s.findMembers(r)
	if err != nil {
		return nil, err
	}
	var list []scalingInstanceJSON
	for _, i := range protocol.Page(found, pages) {
		list = append(list, s.scalingJSON(i))
	}
	return protocol.Reply{
		"TotalCount": len(found), "TotalSpotCount": spot, "PageNumber": pages.Number, "PageSize": pages.Size,
		"ScalingInstances": protocol.Wrap("ScalingInstance", list),
	}, nil
}

// findMembers returns the members that the request asks for, oldest first, and how many of them are spot instances.
// Without a group they are those of the region.
func (s instanceActions) findMembers(r *protocol.Request) (found []*scaling.Member, spot int, err error) {
	ids, err := r.List("InstanceId", maxESSList)
	if err != nil {
		return nil, 0, err
	}
	states, err := r.List("LifecycleStates", maxESSList)
	if err != nil {
		return nil, 0, err
	}
	if state := r.Get("LifecycleState"); state != "" {
		states = append(states, state)
	}
	wanted := memberFilter(r, states)
	candidates, spot := s.Listed().Items, s.Listed().Spot
	if groupID := r.Get("ScalingGroupId"); groupID != "" {
		g, known := s.FindGroup(groupID)
		if !known {
			return nil, 0, nil
		}
		candidates, spot = g.Listed.Items, g.Listed.Spot
	}
	if len(ids) == 0 && wanted == nil {
		return candidates, spot, nil
	}
	if len(ids) > 0 {
		candidates = s.membersOf(ids, r.Get("ScalingGroupId"))
	}
	spot = 0
	for _, i := range candidates {
		if wanted == nil || wanted(i) {
			found = append(found, i)
			if i.IsSpot() {
				spot++
			}
		}
	}
	return found, spot, nil
}

func (s instanceActions) membersOf(ids []string, groupID string) []*scaling.Member {
	var list cloud.Roster[*scaling.Member]
	for _, id := range ids {
		if i, known := s.FindListed(id); known && (groupID == "" || i.Group.ID == groupID) {
			list.Add(i)
		}
	}
	return list.Items
}

// memberFilter is nil where the request wants every member.
func memberFilter(r *protocol.Request, states []string) func(*scaling.Member) bool {
	activity, health, configuration := r.Get("ScalingActivityId"), r.Get("HealthStatus"), r.Get("ScalingConfigurationId")
	if activity == "" && health == "" && configuration == "" && len(states) == 0 {
		return nil
	}
	return func(i *scaling.Member) bool {
		return (activity == "" || i.ActivityID == activity) &&
			(health == "" || (health == "Healthy") == i.Healthy()) &&
			(configuration == "" || i.ConfigID == configuration) &&
			(len(states) == 0 || slices.Contains(states, i.ShownState()))
	}
}

// Bounds of StopInstanceTimeout, in seconds.
const (
	leastStopTimeout = 30
	mostStopTimeout  = 240
)

func (s instanceActions) removeInstances(r *protocol.Request) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
	if err != nil {
		return nil, err
	}
	victims, invalid, err := s.victims(g, r)
	if err != nil {
		return nil, err
	}
	decrease, err := r.Boolean("DecreaseDesiredCapacity", true)
	if err != nil {
		return nil, err
	}
	timeout, err := s.stopTimeout(r)
	if err != nil {
		return nil, err
	}
	// Source: RemovePolicy of RemoveInstances: recycle takes effect only where the group's ScalingPolicy is recycle too.
	policy := r.Get("RemovePolicy")
	if !slices.Contains([]string{"", scaling.ScalingPolicyRelease, scaling.ScalingPolicyRecycle}, policy) {
		return nil, protocol.Invalid("RemovePolicy", policy)
	}
	parallel := g.DesiredCapacity != nil
	if err := g.Admit(parallel); err != nil {
		return nil, err
	}
	left := g.Expected() - len(victims)
	if left < g.MinSize && (decrease || g.DesiredCapacity == nil) {
		return nil, protocol.BadRequest(scaling.CodeBelowMin, "To remove %d instances, the Total Capacity of scaling group %q would be lesser than the MinSize %d.",
			len(victims), g.ID, g.MinSize)
	}
	s.DrawObstacles(victims)
	a := g.Remove(victims, fmt.Sprintf("%s removed instances by action RemoveInstances.", r.Caller.ARN), timeout)
	a.Parallel, a.Invalid = parallel, invalid
	a.Recycle = policy == scaling.ScalingPolicyRecycle && g.ScalingPolicy == scaling.ScalingPolicyRecycle
	if decrease && g.DesiredCapacity != nil {
		desired := max(g.MinSize, *g.DesiredCapacity-len(victims))
		g.DesiredCapacity = &desired
	}
	return protocol.Reply{"ScalingActivityId": a.ID}, nil
}

// stopTimeout is how long the request waits for instances that do not stop, in the time of the world; nil for ever.
func (s instanceActions) stopTimeout(r *protocol.Request) (*time.Duration, error) {
	seconds, err := r.OptionalInteger("StopInstanceTimeout", leastStopTimeout, mostStopTimeout)
	if err != nil || seconds == nil {
		return nil, err
	}
	return ptr.To(time.Duration(float64(*seconds) * float64(time.Second) / s.Speed)), nil
}

// victims returns the named members, protected or not (Alibaba Cloud, SetInstancesProtection: "you can manually delete the
// ECS instance by calling the RemoveInstances operation"). One that is not there, or is on its way in or out, fails the
// call, unless invalid instances are to be ignored and others remain.
func (s instanceActions) victims(g *scaling.Group, r *protocol.Request) (valid []*scaling.Member, invalid []string, err error) {
	ids, err := r.List("InstanceId", maxESSList)
	if err != nil {
		return nil, nil, err
	}
	if len(ids) == 0 {
		return nil, nil, protocol.Missing("InstanceId.1")
	}
	ignore, err := r.Boolean("IgnoreInvalidInstance", false)
	if err != nil {
		return nil, nil, err
	}
	var list cloud.Roster[*scaling.Member]
	var first error
	for _, id := range ids {
		i, known := s.FindMember(id)
		err := error(nil)
		switch {
		case !known || i.Group != g || i.Lifecycle == scaling.StateRemoving:
			err = instanceNotFound(id)
		case i.Lifecycle == scaling.StatePending && s.Cloud.Temper.PendingStay:
			err = protocol.BadRequest(scaling.CodeStatus, "The current status of instance %q does not support this action.", id)
		default:
			list.Add(i)
			continue
		}
		invalid = append(invalid, id)
		if first == nil {
			first = err
		}
	}
	if list.Len() == 0 || first != nil && !ignore {
		return nil, nil, first
	}
	return list.Items, invalid, nil
}
