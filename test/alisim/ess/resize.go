package ess

import (
	"strconv"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// maxAdjustment is how many instances one activity may add or remove.
const maxAdjustment = 1000

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

// scale moves the group's size by delta within its limits. It returns the activity, which is rejected where the limits
// leave nothing to do, and nil where only the desired capacity had to change.
func (g *group) scale(delta int, p purchase, cause string) (*activity, error) {
	s := g.scaling
	from := g.target()
	to := g.clamp(from + delta)
	if to == from && s.cloud.Temper.RefuseNoChange {
		return nil, protocol.BadRequest(codeNoChange, "%s", g.whyUnchanged(delta).Message)
	}
	if to == from || to < from && g.suspended(processScaleIn) {
		a := g.newActivity(purchase{}, cause)
		a.reject(g.whyUnchanged(delta))
		return a, nil
	}
	if g.DesiredCapacity != nil {
		g.DesiredCapacity = &to
	}
	if to > from {
		p.count = to - from
		a := g.newActivity(p, cause)
		a.schedule()
		return a, nil
	}
	count := g.expected() - to
	if g.DesiredCapacity != nil && s.cloud.Temper.Expectation {
		count = from - to
	}
	victims := g.oldest(count)
	if len(victims) == 0 {
		g.lookAfter()
		return nil, nil
	}
	return g.newRemoval(victims, cause, nil), nil
}

// expect sets the desired capacity; the group follows when it is next looked at.
func (g *group) expect(delta int) error {
	s := g.scaling
	from := g.target()
	to := g.clamp(from + delta)
	if to == from && s.cloud.Temper.RefuseNoChange {
		return protocol.BadRequest(codeNoChange, "%s", g.whyUnchanged(delta).Message)
	}
	g.DesiredCapacity = &to
	g.lookAfter()
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

// admit refuses an activity that the group's state, or another activity, does not allow.
func (g *group) admit(parallel bool) error {
	s := g.scaling
	if g.LifecycleState != groupActive || g.SystemSuspended {
		return protocol.BadRequest("IncorrectScalingGroupStatus", "The current status of scaling group %q does not support this action.", g.ID)
	}
	for _, a := range g.running {
		if !parallel || !a.parallel || s.cloud.Temper.OneAtATime {
			return protocol.BadRequest(codeInProgress, "You cannot perform this action while scaling activity %s of scaling group %q is in progress.", a.id, g.ID)
		}
	}
	return nil
}

// taken says whether the group's own activities have to wait for others.
func (g *group) taken() bool {
	s := g.scaling
	return s.cloud.Temper.OneAtATime && len(g.running) > 0
}

// rule is a simple scaling rule: an adjustment kept under a name.
type rule struct {
	seq      uint64
	group    *group
	id, ari  string
	name     string
	kind     string
	value    int
	cooldown int
}

func (r *rule) Ordinal() uint64 { return r.seq }

func (s *Scaling) deleteRule(r *rule) {
	s.rules.Remove(r)
	delete(s.ruleByID, r.id)
	delete(s.ruleByID, r.ari)
}
