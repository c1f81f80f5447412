package ess

import (
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

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
		return s.moveAll(r, scaling.StateInService, scaling.StateProtected)
	}
	return s.moveAll(r, scaling.StateProtected, scaling.StateInService)
}

func (s instanceActions) enterStandby(r *protocol.Request) (protocol.Reply, error) {
	return s.moveAll(r, scaling.StateInService, scaling.StateStandby)
}

func (s instanceActions) exitStandby(r *protocol.Request) (protocol.Reply, error) {
	return s.moveAll(r, scaling.StateStandby, scaling.StateInService)
}

// moveAll moves the named instances that are in one state to another, all of them or none. Those that are there already stay.
func (s instanceActions) moveAll(r *protocol.Request, from, to string) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
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
	var members []*scaling.Member
	for _, id := range ids {
		i, known := s.FindMember(id)
		switch {
		case !known || i.Group != g:
			return nil, instanceNotFound(id)
		case i.Lifecycle != from && i.Lifecycle != to:
			return nil, protocol.BadRequest(scaling.CodeStatus, "The current status of instance %q does not support this action.", id)
		}
		members = append(members, i)
	}
	for _, i := range members {
		i.Enter(to)
	}
	return protocol.Reply{}, nil
}
