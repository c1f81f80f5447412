package ess

import "gpu-spot-autoscaler/test/alisim/protocol"

// slotForScaling refuses an adjustment while another activity is in progress. What is wrong with the request otherwise is
// for the action to say.
func (s *scalingActions) slotForScaling(r *protocol.Request) error {
	g, err := lookup(s.Engine, r)
	if err != nil || s.isPlan(r) || s.onlyExpects(g, r) {
		return nil
	}
	parallel, _ := r.Boolean("ParallelTask", false)
	return g.Admit(parallel || g.DesiredCapacity != nil)
}

// slotForRemoving is slotForScaling for RemoveInstances.
func (s *scalingActions) slotForRemoving(r *protocol.Request) error {
	g, err := lookup(s.Engine, r)
	if err != nil {
		return nil
	}
	return g.Admit(g.DesiredCapacity != nil)
}
