package ess

import (
	"fmt"
	"slices"
	"strconv"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// maxAdjustment is how many instances one activity may add or remove.
const maxAdjustment = 1000

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
	delta, err := s.delta(g, kind, value)
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
func (s *Scaling) execute(g *group, r *protocol.Request, delta int, p purchase, parallel bool) (protocol.Reply, error) {
	if s.onlyExpects(g, r) {
		return protocol.Reply{"ActivityType": capacityChange}, s.expect(g, delta)
	}
	parallel = parallel || g.DesiredCapacity != nil
	if err := s.admit(g, parallel); err != nil {
		return nil, err
	}
	a, err := s.scale(g, delta, p, causeOf(r, s.target(g), delta))
	if err != nil {
		return nil, err
	}
	if a == nil {
		return protocol.Reply{"ScalingActivityId": "", "ActivityType": capacityChange}, nil
	}
	a.parallel, a.metadata = parallel, s.note(r)
	return protocol.Reply{"ScalingActivityId": a.id}, nil
}

// delta turns an adjustment into a number of instances.
func (s *Scaling) delta(g *group, kind string, value int) (int, error) {
	size := s.target(g)
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
	if forced, yes := r.Faults[protocol.FaultRollBack]; yes {
		p.rollBack = &forced
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
	if aimed && s.cloud.Temper.Targeting == temper.TargetingRefused {
		return p, protocol.BadRequest("InvalidParameter", "InstanceType, VSwitchId and SpotStrategy are not supported by this action.")
	}
	ignored := s.IgnoreTargeting || g.IgnoreTargeting || r.Faults.Has(protocol.FaultIgnoreTargeting) ||
		s.cloud.Temper.Targeting == temper.TargetingIgnored
	if !ignored {
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

// scale moves the group's size by delta within its limits. It returns the activity, which is rejected where the limits
// leave nothing to do, and nil where only the desired capacity had to change.
func (s *Scaling) scale(g *group, delta int, p purchase, cause string) (*activity, error) {
	from := s.target(g)
	to := g.clamp(from + delta)
	if to == from && s.cloud.Temper.RefuseNoChange {
		return nil, protocol.BadRequest(codeNoChange, "%s", g.whyUnchanged(delta).Message)
	}
	if to == from || to < from && g.suspended(processScaleIn) {
		a := s.newActivity(g, purchase{}, cause)
		s.reject(a, g.whyUnchanged(delta))
		return a, nil
	}
	if g.DesiredCapacity != nil {
		g.DesiredCapacity = &to
	}
	if to > from {
		p.count = to - from
		a := s.newActivity(g, p, cause)
		s.schedule(a)
		return a, nil
	}
	count := g.expected() - to
	if g.DesiredCapacity != nil && s.cloud.Temper.Expectation {
		count = from - to
	}
	victims := s.oldest(g, count)
	if len(victims) == 0 {
		s.lookAfter(g)
		return nil, nil
	}
	return s.newRemoval(g, victims, cause), nil
}

// onlyExpects says whether an adjustment changes nothing but the desired capacity.
func (s *Scaling) onlyExpects(g *group, r *protocol.Request) bool {
	sync, _ := r.Boolean("SyncActivity", false)
	return g.DesiredCapacity != nil && s.cloud.Temper.Expectation && !sync
}

// expect sets the desired capacity; the group follows when it is next looked at.
func (s *Scaling) expect(g *group, delta int) error {
	from := s.target(g)
	to := g.clamp(from + delta)
	if to == from && s.cloud.Temper.RefuseNoChange {
		return protocol.BadRequest(codeNoChange, "%s", g.whyUnchanged(delta).Message)
	}
	g.DesiredCapacity = &to
	s.lookAfter(g)
	return nil
}

func (g *group) whyUnchanged(delta int) *protocol.Failure {
	switch {
	case delta > 0:
		return protocol.Fail(codeAboveMax, "Scaling group %q is at its maximum of %d instances.", g.ID, g.MaxSize)
	case delta < 0 && g.suspended(processScaleIn):
		return protocol.Fail(codeSuspended, "Process ScaleIn of scaling group %q is suspended.", g.ID)
	case delta < 0:
		return protocol.Fail(codeBelowMin, "Scaling group %q is at its minimum of %d instances.", g.ID, g.MinSize)
	}
	return protocol.Fail(codeNoChange, "Scaling group %q has the requested size already.", g.ID)
}

func causeOf(r *protocol.Request, from, delta int) string {
	return fmt.Sprintf("%s executed action %s, changing the Total Capacity from %d to %d.", r.Caller.ARN, r.Action, from, from+delta)
}
