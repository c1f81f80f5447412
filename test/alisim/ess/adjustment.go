package ess

import (
	"fmt"
	"slices"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// scalingActions answers ScaleWithAdjustment.
type scalingActions struct {
	*scaling.Engine
	// noted counts activities with metadata, since the temper loses that of one in so many.
	noted int
}

func (s *scalingActions) scaleWithAdjustment(r *protocol.Request) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
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
	value, err := r.Integer("AdjustmentValue", 0, -10*scaling.MaxAdjustment, 10*scaling.MaxAdjustment)
	if err != nil {
		return nil, err
	}
	delta, err := g.Delta(kind, value)
	if err != nil {
		return nil, err
	}
	p, err := s.purchaseFor(g, r)
	if err != nil {
		return nil, err
	}
	if s.isPlan(r) {
		return s.plan(g, delta, p)
	}
	parallel, err := r.Boolean("ParallelTask", false)
	if err != nil {
		return nil, err
	}
	return s.execute(g, r, delta, p, parallel)
}

// capacityChange is the type of an adjustment that changes the desired capacity and begins no activity.
const capacityChange = "CapacityChange"

// execute begins the activity of a manual adjustment. Groups with a desired capacity run manual activities side by
// side; others only where the request says so.
func (s *scalingActions) execute(g *scaling.Group, r *protocol.Request, delta int, p scaling.Purchase, parallel bool) (protocol.Reply, error) {
	if s.onlyExpects(g, r) {
		return protocol.Reply{"ActivityType": capacityChange}, g.Expect(delta)
	}
	parallel = parallel || g.DesiredCapacity != nil
	if err := g.Admit(parallel); err != nil {
		return nil, err
	}
	a, err := g.Scale(delta, p, causeOf(r, g.Target(), delta))
	if err != nil {
		return nil, err
	}
	if a == nil {
		return protocol.Reply{"ScalingActivityId": "", "ActivityType": capacityChange}, nil
	}
	a.Parallel, a.Metadata = parallel, s.note(r)
	return protocol.Reply{"ScalingActivityId": a.ID}, nil
}

// purchaseFor reads what the request wants bought. Types and vSwitches have to be among the group's.
func (s *scalingActions) purchaseFor(g *scaling.Group, r *protocol.Request) (scaling.Purchase, error) {
	var p scaling.Purchase
	if partial, yes := r.Faults[protocol.FaultPartialFill]; yes {
		p.Most, p.Because = &partial.Count, partial.Code
	}
	if forced, yes := r.Faults[protocol.FaultRollBack]; yes {
		p.RollBack = &forced
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
	aimed := len(types)+len(vswitches) > 0 || strategy != ""
	if aimed && s.Cloud.Temper.Targeting == temper.TargetingRefused {
		return p, protocol.BadRequest("InvalidParameter", "InstanceType, VSwitchId and SpotStrategy are not supported by this action.")
	}
	ignored := s.IgnoreTargeting || g.IgnoreTargeting || r.Faults.Has(protocol.FaultIgnoreTargeting) ||
		s.Cloud.Temper.Targeting == temper.TargetingIgnored
	if !ignored {
		p.Types, p.VSwitches, p.Strategy = types, vswitches, strategy
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

// onlyExpects says whether an adjustment changes nothing but the desired capacity.
func (s *scalingActions) onlyExpects(g *scaling.Group, r *protocol.Request) bool {
	sync, _ := r.Boolean("SyncActivity", false)
	return g.DesiredCapacity != nil && s.Cloud.Temper.Expectation && !sync
}

func causeOf(r *protocol.Request, from, delta int) string {
	return fmt.Sprintf("%s executed action %s, changing the Total Capacity from %d to %d.", r.Caller.ARN, r.Action, from, from+delta)
}
