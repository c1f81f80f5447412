package ess

import (
	"fmt"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// attachInstances begins to put running instances into a group that does nothing else.
func (s instanceActions) attachInstances(r *protocol.Request) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
	if err != nil {
		return nil, err
	}
	if err := g.Admit(g.DesiredCapacity != nil); err != nil {
		return nil, err
	}
	entrusted, err := r.Boolean("Entrusted", false)
	if err != nil {
		return nil, err
	}
	instances, invalid, err := s.attachable(r)
	if err != nil {
		return nil, err
	}
	if left := g.MaxSize - g.Expected(); len(instances) > left {
		return nil, protocol.BadRequest(scaling.CodeAboveMax, "To attach %d instances, the Total Capacity of scaling group %q would be greater than the MaxSize %d.",
			len(instances), g.ID, g.MaxSize)
	}
	a := s.Attach(g, instances, entrusted, fmt.Sprintf("%s attached instances by action AttachInstances.", r.Caller.ARN))
	a.Invalid = invalid
	return protocol.Reply{"ScalingActivityId": a.ID}, nil
}

// attachable returns the named instances. One that cannot be attached fails the call, unless invalid instances are to be ignored and
// others remain.
func (s instanceActions) attachable(r *protocol.Request) (valid []*ecs.Instance, invalid []string, err error) {
	ids, err := r.List("InstanceId", maxESSList)
	if err != nil {
		return nil, nil, err
	}
	ignore, err := r.Boolean("IgnoreInvalidInstance", false)
	if err != nil {
		return nil, nil, err
	}
	first := error(protocol.Missing("InstanceId.1"))
	for _, id := range ids {
		i, known := s.Compute.Instance(id)
		why := error(nil)
		if !known {
			why = instanceNotFound(id)
		} else {
			why = s.whyNotAttachable(i)
		}
		if why == nil {
			valid = append(valid, i)
			continue
		}
		if len(invalid) == 0 {
			first = why
		}
		invalid = append(invalid, id)
	}
	if len(valid) == 0 || len(invalid) > 0 && !ignore {
		return nil, nil, first
	}
	return valid, invalid, nil
}

func (s instanceActions) whyNotAttachable(i *ecs.Instance) error {
	if m, is := s.FindMember(i.ID); is {
		return protocol.BadRequest("InvalidInstanceId.InUse", "Instance %q is in scaling group %q.", i.ID, m.Group.ID)
	}
	if i.Status != ecs.Running {
		return protocol.BadRequest(scaling.CodeStatus, "The current status of instance %q does not support this action.", i.ID)
	}
	return nil
}
