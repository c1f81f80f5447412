package ess

import "gpu-spot-autoscaler/test/alisim/protocol"

// setInstancesProtection puts instances into Protected, or back to service.
func (s instanceActions) setInstancesProtection(r *protocol.Request) (protocol.Reply, error) {
	if _, err := r.Required("ProtectedFromScaleIn"); err != nil {
		return nil, err
	}
	protect, err := r.Boolean("ProtectedFromScaleIn", false)
	if err != nil {
		return nil, err
	}
	if protect {
		return s.moveAll(r, stateInService, stateProtected)
	}
	return s.moveAll(r, stateProtected, stateInService)
}

func (s instanceActions) enterStandby(r *protocol.Request) (protocol.Reply, error) {
	return s.moveAll(r, stateInService, stateStandby)
}

func (s instanceActions) exitStandby(r *protocol.Request) (protocol.Reply, error) {
	return s.moveAll(r, stateStandby, stateInService)
}

// moveAll moves the named instances that are in one state to another, all of them or none. Those that are there already stay.
func (s instanceActions) moveAll(r *protocol.Request, from, to string) (protocol.Reply, error) {
	g, err := lookup(s.Scaling, r)
	if err != nil {
		return nil, err
	}
	ids, err := r.List("InstanceId", maxESSList)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, protocol.Missing("InstanceId.1")
	}
	for _, id := range ids {
		i, known := s.memberBy[id]
		switch {
		case !known || i.group != g:
			return nil, instanceNotFound(id)
		case i.lifecycle != from && i.lifecycle != to:
			return nil, protocol.BadRequest(codeStatus, "The current status of instance %q does not support this action.", id)
		}
	}
	for _, id := range ids {
		s.memberBy[id].enter(to)
	}
	return protocol.Reply{}, nil
}
