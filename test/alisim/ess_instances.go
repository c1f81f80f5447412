package alisim

import (
	"fmt"
	"slices"
)

type scalingInstanceJSON struct {
	InstanceId, ScalingGroupId, ScalingConfigurationId, ScalingActivityId string

	LifecycleState, HealthStatus, WarmupState, CreationType string

	InstanceType, ZoneId, SpotStrategy, PrivateIpAddress string
	CreationTime, CreatedTime                            string
	WeightedCapacity, LoadBalancerWeight                 int
	Entrusted                                            bool
}

func (i *instance) scalingJSON() scalingInstanceJSON {
	health := "Healthy"
	if !i.healthy() {
		health = "Unhealthy"
	}
	return scalingInstanceJSON{
		InstanceId: i.id, ScalingGroupId: i.group.ID, ScalingConfigurationId: i.configID, ScalingActivityId: i.activityID,
		LifecycleState: i.lifecycle, HealthStatus: health, WarmupState: "NoNeedWarmup", CreationType: "AutoCreated",
		InstanceType: i.typ.ID, ZoneId: i.vsw.Zone, SpotStrategy: i.spotStrategy, PrivateIpAddress: i.ip,
		CreationTime: i.created.UTC().Format(minuteLayout), CreatedTime: i.created.UTC().Format(secondLayout),
		WeightedCapacity: 1, LoadBalancerWeight: 50,
	}
}

func describeScalingInstances(c *cloud, r *request) (reply, error) {
	pages, err := r.paging(maxESSInstancesPage)
	if err != nil {
		return nil, err
	}
	found, spot, err := c.findMembers(r)
	if err != nil {
		return nil, err
	}
	var list []scalingInstanceJSON
	for _, i := range page(found, pages.number, pages.size) {
		list = append(list, i.scalingJSON())
	}
	return reply{
		"TotalCount": len(found), "TotalSpotCount": spot, "PageNumber": pages.number, "PageSize": pages.size,
		"ScalingInstances": wrap("ScalingInstance", list),
	}, nil
}

// findMembers returns the members that the request asks for, oldest first, and how many of them are spot instances.
// Without a group they are those of the region.
func (c *cloud) findMembers(r *request) (found []*instance, spot int, err error) {
	ids, err := r.list("InstanceId", maxESSList)
	if err != nil {
		return nil, 0, err
	}
	states, err := r.list("LifecycleStates", maxESSList)
	if err != nil {
		return nil, 0, err
	}
	if state := r.get("LifecycleState"); state != "" {
		states = append(states, state)
	}
	wanted := memberFilter(r, states)
	candidates, spot := c.members.items, c.spot
	if groupID := r.get("ScalingGroupId"); groupID != "" {
		g, known := c.groupByID[groupID]
		if !known {
			return nil, 0, nil
		}
		candidates, spot = g.members.items, g.spot
	}
	if len(ids) == 0 && wanted == nil {
		return candidates, spot, nil
	}
	if len(ids) > 0 {
		candidates = c.membersOf(ids, r.get("ScalingGroupId"))
	}
	spot = 0
	for _, i := range candidates {
		if wanted == nil || wanted(i) {
			found = append(found, i)
			if i.isSpot() {
				spot++
			}
		}
	}
	return found, spot, nil
}

func (c *cloud) membersOf(ids []string, groupID string) []*instance {
	var list roster[*instance]
	for _, id := range ids {
		if i, known := c.instanceBy[id]; known && i.member && (groupID == "" || i.group.ID == groupID) {
			list.add(i)
		}
	}
	return list.items
}

// memberFilter is nil where the request wants every member.
func memberFilter(r *request, states []string) func(*instance) bool {
	activity, health, configuration := r.get("ScalingActivityId"), r.get("HealthStatus"), r.get("ScalingConfigurationId")
	if activity == "" && health == "" && configuration == "" && len(states) == 0 {
		return nil
	}
	return func(i *instance) bool {
		return (activity == "" || i.activityID == activity) &&
			(health == "" || (health == "Healthy") == i.healthy()) &&
			(configuration == "" || i.configID == configuration) &&
			(len(states) == 0 || slices.Contains(states, i.lifecycle))
	}
}

func removeInstances(c *cloud, r *request) (reply, error) {
	g, err := c.lookup(r)
	if err != nil {
		return nil, err
	}
	victims, err := c.victims(g, r)
	if err != nil {
		return nil, err
	}
	decrease, err := r.boolean("DecreaseDesiredCapacity", true)
	if err != nil {
		return nil, err
	}
	parallel := g.DesiredCapacity != nil
	if err := g.admit(parallel); err != nil {
		return nil, err
	}
	left := g.expected() - len(victims)
	if left < g.MinSize && (decrease || g.DesiredCapacity == nil) {
		return nil, badRequest(codeBelowMin, "To remove %d instances, the Total Capacity of scaling group %q would be lesser than the MinSize %d.",
			len(victims), g.ID, g.MinSize)
	}
	a := c.newRemoval(g, victims, fmt.Sprintf("%s removed instances by action RemoveInstances.", r.caller.ARN))
	a.parallel = parallel
	if decrease && g.DesiredCapacity != nil {
		desired := max(g.MinSize, *g.DesiredCapacity-len(victims))
		g.DesiredCapacity = &desired
	}
	return reply{"ScalingActivityId": a.id}, nil
}

// victims returns the named members. One that is not there, or is on its way out already, fails the call, unless
// invalid instances are to be ignored and others remain.
func (c *cloud) victims(g *group, r *request) ([]*instance, error) {
	ids, err := r.list("InstanceId", maxESSList)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, missing("InstanceId.1")
	}
	ignore, err := r.boolean("IgnoreInvalidInstance", false)
	if err != nil {
		return nil, err
	}
	var list roster[*instance]
	for _, id := range ids {
		i, known := c.instanceBy[id]
		if known && i.member && i.group == g && i.lifecycle != stateRemoving {
			list.add(i)
		} else if !ignore {
			return nil, instanceNotFound(id)
		}
	}
	if list.len() == 0 {
		return nil, instanceNotFound(ids[0])
	}
	return list.items, nil
}
