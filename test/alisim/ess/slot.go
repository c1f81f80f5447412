package ess

import "gpu-spot-autoscaler/test/alisim/protocol"

// admit refuses an activity that the group's state, or another activity, does not allow.
func (s *Scaling) admit(g *group, parallel bool) error {
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
func (s *Scaling) taken(g *group) bool {
	return s.cloud.Temper.OneAtATime && len(g.running) > 0
}

// slotForScaling refuses an adjustment while another activity is in progress. What is wrong with the request otherwise is
// for the action to say.
func (s *Scaling) slotForScaling(r *protocol.Request) error {
	g, err := s.lookup(r)
	if err != nil || s.isPlan(r) || s.onlyExpects(g, r) {
		return nil
	}
	parallel, _ := r.Boolean("ParallelTask", false)
	return s.admit(g, parallel || g.DesiredCapacity != nil)
}

// slotForRemoving is slotForScaling for RemoveInstances.
func (s *Scaling) slotForRemoving(r *protocol.Request) error {
	g, err := s.lookup(r)
	if err != nil {
		return nil
	}
	return s.admit(g, g.DesiredCapacity != nil)
}
