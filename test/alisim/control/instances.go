package control

import (
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// instancePanel gives notices to instances, obstructs their removal and lists them.
type instancePanel struct{ services }

// Reclaim gives a spot instance its notice now, protected or not.
func (p instancePanel) Reclaim(instanceID string) error {
	return p.withInstance(instanceID, func(i *ecs.Instance) { p.compute.Reclaim(i, p.cloud.Clock.Now()) })
}

// Withdraw takes the notice of an instance back: it lives on as if there had been none.
func (p instancePanel) Withdraw(instanceID string) error {
	recycling := false
	err := p.withInstance(instanceID, func(i *ecs.Instance) {
		if recycling = i.Recycling(); recycling {
			p.compute.Withdraw(i)
		}
	})
	if err == nil && !recycling {
		return unknown("instance with a notice", instanceID)
	}
	return err
}

// StopInstance makes an instance unhealthy, as if it had been stopped from inside.
func (p instancePanel) StopInstance(instanceID string) error {
	return p.withInstance(instanceID, p.compute.Stop)
}

// SetLifecycle moves an instance between InService, Protected, Standby and Stopped, as a user does who protects it, takes
// it out of service or sends it into the economical mode.
func (p instancePanel) SetLifecycle(instanceID, state string) (err error) {
	p.locked(func() { err = p.scaling.SetLifecycle(instanceID, state) })
	return err
}

// Hang keeps an instance from stopping by itself when it is removed; what becomes of it the temper decides.
func (p instancePanel) Hang(instanceID string) error { return p.obstruct(instanceID, true, false) }

// Stay makes the next try to release an instance fail.
func (p instancePanel) Stay(instanceID string) error { return p.obstruct(instanceID, false, true) }

// Instances returns all instances, oldest first, those included that are released but still members of their group.
func (p instancePanel) Instances() (list []scaling.InstanceView) {
	p.locked(func() { list = p.scaling.Instances() })
	return list
}

// Instance returns an instance; false where there is none of that ID.
func (p instancePanel) Instance(id string) (v scaling.InstanceView, known bool) {
	p.locked(func() { v, known = p.scaling.Instance(id) })
	return v, known
}

func (p instancePanel) obstruct(instanceID string, hangs, stays bool) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	if !p.scaling.Obstruct(instanceID, hangs, stays) {
		return unknown("instance of a scaling group", instanceID)
	}
	return nil
}

func (p instancePanel) withInstance(id string, do func(*ecs.Instance)) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	i, known := p.compute.Instance(id)
	if !known {
		return unknown("instance", id)
	}
	do(i)
	return nil
}
