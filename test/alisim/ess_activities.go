package alisim

import (
	"fmt"
	"slices"
	"strconv"
)

// maxAdjustment is how many instances one activity may add or remove.
const maxAdjustment = 1000

type activityJSON struct {
	ScalingActivityId, ScalingGroupId, StatusCode, StatusMessage string
	Cause, Description, ActivityMetadata, TriggerSourceType      string
	ErrorCode, ErrorMessage                                      string
	StartTime, EndTime                                           string
	Progress, ScalingInstanceNumber                              int
	CreatedCapacity, DestroyedCapacity                           int
	TotalCapacity                                                string
	CreatedInstances, DestroyedInstances                         map[string][]string
}

func (a *activity) json() activityJSON {
	j := activityJSON{
		ScalingActivityId: a.id, ScalingGroupId: a.group.ID, StatusCode: a.status, StatusMessage: a.statusMessage(),
		Cause: a.cause, Description: a.description(), ActivityMetadata: a.metadata, TriggerSourceType: "Api",
		StartTime: optionalTime(a.started, minuteLayout), EndTime: optionalTime(a.ended, minuteLayout),
		Progress: a.progress(), ScalingInstanceNumber: a.purchase.count + len(a.victims), TotalCapacity: strconv.Itoa(a.before),
		CreatedCapacity: len(a.created), DestroyedCapacity: len(a.removed),
		DestroyedInstances: wrap("DestroyedInstance", a.removed),
	}
	var created []string
	for _, i := range a.created {
		created = append(created, i.id)
	}
	j.CreatedInstances = wrap("CreatedInstance", created)
	if a.failure != nil && a.status != activityInProgress {
		j.ErrorCode, j.ErrorMessage = a.failure.code, a.failure.message
	}
	return j
}

func describeScalingActivities(c *cloud, r *request) (reply, error) {
	pages, err := r.paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	ids, err := r.list("ScalingActivityId", maxESSList)
	if err != nil {
		return nil, err
	}
	groupID, status := r.get("ScalingGroupId"), r.get("StatusCode")
	if groupID == "" && len(ids) == 0 {
		return nil, missing("ScalingGroupId")
	}
	var found []*activity
	for _, a := range c.activitiesOf(ids, groupID) {
		if (groupID == "" || a.group.ID == groupID) && (status == "" || a.status == status) {
			found = append(found, a)
		}
	}
	var list []activityJSON
	for _, a := range page(found, pages.number, pages.size) {
		list = append(list, a.json())
	}
	return reply{
		"TotalCount": len(found), "PageNumber": pages.number, "PageSize": pages.size,
		"ScalingActivities": wrap("ScalingActivity", list),
	}, nil
}

// activitiesOf returns the named activities, else those of the group, newest first.
func (c *cloud) activitiesOf(ids []string, groupID string) []*activity {
	var list []*activity
	if len(ids) == 0 {
		if g, known := c.groupByID[groupID]; known {
			list = slices.Clone(g.history)
		}
	} else {
		var named roster[*activity]
		for _, id := range ids {
			if a, known := c.activities[id]; known {
				named.add(a)
			}
		}
		list = named.items
	}
	slices.Reverse(list)
	return list
}

func scaleWithAdjustment(c *cloud, r *request) (reply, error) {
	g, err := c.lookup(r)
	if err != nil {
		return nil, err
	}
	kind, err := r.required("AdjustmentType")
	if err != nil {
		return nil, err
	}
	if _, err := r.required("AdjustmentValue"); err != nil {
		return nil, err
	}
	value, err := r.integer("AdjustmentValue", 0, -10*maxAdjustment, 10*maxAdjustment)
	if err != nil {
		return nil, err
	}
	delta, err := g.delta(kind, value)
	if err != nil {
		return nil, err
	}
	p, err := c.purchaseFor(g, r)
	if err != nil {
		return nil, err
	}
	parallel, err := r.boolean("ParallelTask", false)
	if err != nil {
		return nil, err
	}
	return c.execute(g, r, delta, p, parallel)
}

// execute begins the activity of a manual adjustment. Groups with a desired capacity run manual activities side by
// side; others only where the request says so.
func (c *cloud) execute(g *group, r *request, delta int, p purchase, parallel bool) (reply, error) {
	parallel = parallel || g.DesiredCapacity != nil
	if err := g.admit(parallel); err != nil {
		return nil, err
	}
	a := c.scale(g, delta, p, causeOf(r, g.target(), delta))
	if a == nil {
		return reply{"ScalingActivityId": "", "ActivityType": "CapacityChange"}, nil
	}
	a.parallel, a.metadata = parallel, r.get("ActivityMetadata")
	return reply{"ScalingActivityId": a.id}, nil
}

// delta turns an adjustment into a number of instances.
func (g *group) delta(kind string, value int) (int, error) {
	size := g.target()
	var delta int
	switch kind {
	case "QuantityChangeInCapacity":
		delta = value
	case "PercentChangeInCapacity":
		delta = size * value / 100
	case "TotalCapacity":
		if value < 0 {
			return 0, invalid("AdjustmentValue", strconv.Itoa(value))
		}
		return value - size, nil
	default:
		return 0, invalid("AdjustmentType", kind)
	}
	if delta > maxAdjustment || delta < -maxAdjustment {
		return 0, invalid("AdjustmentValue", strconv.Itoa(value))
	}
	return delta, nil
}

// purchaseFor reads what the request wants bought. Types and vSwitches have to be among the group's.
func (c *cloud) purchaseFor(g *group, r *request) (purchase, error) {
	var p purchase
	if partial, yes := r.faults[FaultPartialFill]; yes {
		p.most, p.because = &partial.Count, partial.Code
	}
	types, err := r.list("InstanceType", 10)
	if err != nil {
		return p, err
	}
	vswitches, err := r.list("VSwitchId", 8)
	if err != nil {
		return p, err
	}
	strategy := r.get("SpotStrategy")
	if !oneOf(strategy, "", NoSpot, SpotAsPriceGo, SpotWithPriceLimit) {
		return p, invalid("SpotStrategy", strategy)
	}
	if err := among("InstanceType", types, g.InstanceTypes); err != nil {
		return p, err
	}
	if err := among("VSwitchId", vswitches, g.VSwitches); err != nil {
		return p, err
	}
	if !c.world.IgnoreTargeting && !g.IgnoreTargeting && !r.faults.has(FaultIgnoreTargeting) {
		p.types, p.vswitches, p.strategy = types, vswitches, strategy
	}
	return p, nil
}

func among(parameter string, named, known []string) error {
	for n, value := range named {
		if !slices.Contains(known, value) {
			return invalid(fmt.Sprintf("%s.%d", parameter, n+1), value)
		}
	}
	return nil
}
