package ess

import (
	"fmt"
	"slices"
	"strconv"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
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
		StartTime: protocol.OptionalTime(a.started, protocol.MinuteLayout), EndTime: protocol.OptionalTime(a.ended, protocol.MinuteLayout),
		Progress: a.progress(), ScalingInstanceNumber: a.purchase.count + len(a.victims), TotalCapacity: strconv.Itoa(a.before),
		CreatedCapacity: len(a.created), DestroyedCapacity: len(a.removed),
		DestroyedInstances: protocol.Wrap("DestroyedInstance", a.removed),
	}
	var created []string
	for _, i := range a.created {
		created = append(created, i.ID)
	}
	j.CreatedInstances = protocol.Wrap("CreatedInstance", created)
	if a.failure != nil && a.status != activityInProgress {
		j.ErrorCode, j.ErrorMessage = a.failure.Code, a.failure.Message
	}
	return j
}

func (s *Scaling) describeScalingActivities(r *protocol.Request) (protocol.Reply, error) {
	pages, err := r.Paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	ids, err := r.List("ScalingActivityId", maxESSList)
	if err != nil {
		return nil, err
	}
	groupID, status := r.Get("ScalingGroupId"), r.Get("StatusCode")
	if groupID == "" && len(ids) == 0 {
		return nil, protocol.Missing("ScalingGroupId")
	}
	var found []*activity
	for _, a := range s.activitiesOf(ids, groupID) {
		if (groupID == "" || a.group.ID == groupID) && (status == "" || a.status == status) {
			found = append(found, a)
		}
	}
	var list []activityJSON
	for _, a := range protocol.Page(found, pages) {
		list = append(list, a.json())
	}
	return protocol.Reply{
		"TotalCount": len(found), "PageNumber": pages.Number, "PageSize": pages.Size,
		"ScalingActivities": protocol.Wrap("ScalingActivity", list),
	}, nil
}

// activitiesOf returns the named activities, else those of the group, newest first.
func (s *Scaling) activitiesOf(ids []string, groupID string) []*activity {
	var list []*activity
	if len(ids) == 0 {
		if g, known := s.groupByID[groupID]; known {
			list = slices.Clone(g.history)
		}
	} else {
		var named cloud.Roster[*activity]
		for _, id := range ids {
			if a, known := s.activities[id]; known {
				named.Add(a)
			}
		}
		list = named.Items
	}
	slices.Reverse(list)
	return list
}

func (s *Scaling) scaleWithAdjustment(r *protocol.Request) (protocol.Reply, error) {
	g, err := s.lookup(r)
	if err != nil {
		return nil, err
	}
	kind, err := r.Required("AdjustmentType")
	if err != nil {
		return nil, err
	}
	if _, err := r.Required("AdjustmentValue"); err != nil {
		return nil, err
	}
	value, err := r.Integer("AdjustmentValue", 0, -10*maxAdjustment, 10*maxAdjustment)
	if err != nil {
		return nil, err
	}
	delta, err := g.delta(kind, value)
	if err != nil {
		return nil, err
	}
	p, err := s.purchaseFor(g, r)
	if err != nil {
		return nil, err
	}
	parallel, err := r.Boolean("ParallelTask", false)
	if err != nil {
		return nil, err
	}
	return s.execute(g, r, delta, p, parallel)
}

// execute begins the activity of a manual adjustment. Groups with a desired capacity run manual activities side by
// side; others only where the request says so.
func (s *Scaling) execute(g *group, r *protocol.Request, delta int, p purchase, parallel bool) (protocol.Reply, error) {
	parallel = parallel || g.DesiredCapacity != nil
	if err := g.admit(parallel); err != nil {
		return nil, err
	}
	a := s.scale(g, delta, p, causeOf(r, g.target(), delta))
	if a == nil {
		return protocol.Reply{"ScalingActivityId": "", "ActivityType": "CapacityChange"}, nil
	}
	a.parallel, a.metadata = parallel, r.Get("ActivityMetadata")
	return protocol.Reply{"ScalingActivityId": a.id}, nil
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
			return 0, protocol.Invalid("AdjustmentValue", strconv.Itoa(value))
		}
		return value - size, nil
	default:
		return 0, protocol.Invalid("AdjustmentType", kind)
	}
	if delta > maxAdjustment || delta < -maxAdjustment {
		return 0, protocol.Invalid("AdjustmentValue", strconv.Itoa(value))
	}
	return delta, nil
}

// purchaseFor reads what the request wants bought. Types and vSwitches have to be among the group's.
func (s *Scaling) purchaseFor(g *group, r *protocol.Request) (purchase, error) {
	var p purchase
	if partial, yes := r.Faults[protocol.FaultPartialFill]; yes {
		p.most, p.because = &partial.Count, partial.Code
	}
	types, err := r.List("InstanceType", 10)
	if err != nil {
		return p, err
	}
	vswitches, err := r.List("VSwitchId", 8)
	if err != nil {
		return p, err
	}
	strategy := r.Get("SpotStrategy")
	if !slices.Contains([]string{"", ecs.NoSpot, ecs.SpotAsPriceGo, ecs.SpotWithPriceLimit}, strategy) {
		return p, protocol.Invalid("SpotStrategy", strategy)
	}
	if err := among("InstanceType", types, g.InstanceTypes); err != nil {
		return p, err
	}
	if err := among("VSwitchId", vswitches, g.VSwitches); err != nil {
		return p, err
	}
	if !s.IgnoreTargeting && !g.IgnoreTargeting && !r.Faults.Has(protocol.FaultIgnoreTargeting) {
		p.types, p.vswitches, p.strategy = types, vswitches, strategy
	}
	return p, nil
}

func among(parameter string, named, known []string) error {
	for n, value := range named {
		if !slices.Contains(known, value) {
			return protocol.Invalid(fmt.Sprintf("%s.%d", parameter, n+1), value)
		}
	}
	return nil
}
