package scaling

import (
	"strconv"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// MaxAdjustment is how many instances one activity may add or remove.
const MaxAdjustment = 1000

// Delta turns an adjustment into a number of instances.
func (g *Group) Delta(kind string, value int) (int, error) {
	size := g.Target()
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
	if delta > MaxAdjustment || delta < -MaxAdjustment {
		return 0, protocol.Invalid("AdjustmentValue", strconv.Itoa(value))
	}
	return delta, nil
}

// Scale moves the group's size by delta within its limits. It returns the activity, which is rejected where the limits
// leave nothing to do, and nil where only the desired capacity had to change.
func (g *Group) Scale(delta int, p Purchase, cause string) (*Activity, error) {
	s := g.scaling
	from := g.Target()
	to := g.Clamp(from + delta)
	if to == from && s.Cloud.Temper.RefuseNoChange {
		return nil, protocol.BadRequest(CodeNoChange, "%s", g.WhyUnchanged(delta).Message)
	}
	if to == from || to < from && g.Suspended(ProcessScaleIn) {
		a := g.newActivity(Purchase{}, cause)
		a.reject(g.WhyUnchanged(delta))
		return a, nil
	}
	if g.DesiredCapacity != nil {
		g.DesiredCapacity = &to
	}
	if to > from {
		p.Count = to - from
		a := g.newActivity(p, cause)
		a.schedule()
		return a, nil
	}
	count := g.Expected() - to
	if g.DesiredCapacity != nil && s.Cloud.Temper.Expectation {
		count = from - to
	}
	victims := g.oldest(count)
	if len(victims) == 0 {
		g.CheckSoon()
		return nil, nil
	}
	return g.Remove(victims, cause, nil), nil
}

// Expect sets the desired capacity; the group follows when it is next looked at.
func (g *Group) Expect(delta int) error {
	s := g.scaling
	from := g.Target()
	to := g.Clamp(from + delta)
	if to == from && s.Cloud.Temper.RefuseNoChange {
		return protocol.BadRequest(CodeNoChange, "%s", g.WhyUnchanged(delta).Message)
	}
	g.DesiredCapacity = &to
	g.CheckSoon()
	return nil
}

// WhyUnchanged says why an adjustment by delta leaves the size as it is.
func (g *Group) WhyUnchanged(delta int) *protocol.Failure {
	switch {
	case delta > 0:
		return protocol.Fail(CodeAboveMax, "Engine group %q is at its maximum of %d instances.", g.ID, g.MaxSize)
	case delta < 0 && g.Suspended(ProcessScaleIn):
		return protocol.Fail(CodeSuspended, "Process ScaleIn of scaling group %q is suspended.", g.ID)
	case delta < 0:
		return protocol.Fail(CodeBelowMin, "Engine group %q is at its minimum of %d instances.", g.ID, g.MinSize)
	}
	return protocol.Fail(CodeNoChange, "Engine group %q has the requested size already.", g.ID)
}

// Admit refuses an activity that the group's state, or another activity, does not allow.
func (g *Group) Admit(parallel bool) error {
	s := g.scaling
	if g.LifecycleState != GroupActive || g.SystemSuspended {
		return protocol.BadRequest("IncorrectScalingGroupStatus", "The current status of scaling group %q does not support this action.", g.ID)
	}
	for _, a := range g.running {
		if !parallel || !a.Parallel || s.Cloud.Temper.OneAtATime {
			return protocol.BadRequest(CodeInProgress, "You cannot perform this action while scaling activity %s of scaling group %q is in progress.", a.ID, g.ID)
		}
	}
	return nil
}

// taken says whether the group's own activities have to wait for others.
func (g *Group) taken() bool {
	s := g.scaling
	return s.Cloud.Temper.OneAtATime && len(g.running) > 0
}
