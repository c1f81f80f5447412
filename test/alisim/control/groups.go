package control

import (
	"gpu-spot-autoscaler/test/alisim/ess"
)

// groupPanel adds, changes and deletes scaling groups.
type groupPanel struct{ services }

// PutGroup adds a pool, or changes one without touching its instances.
func (p groupPanel) PutGroup(pool ess.Pool) error {
	if err := pool.Validate(p.compute.Sells, p.compute.HasVSwitch); err != nil {
		return err
	}
	p.locked(func() { p.scaling.PutGroup(pool) })
	return nil
}

// DeleteGroup releases all instances of a pool at once and forgets it.
func (p groupPanel) DeleteGroup(id string) error {
	return p.withGroup(id, func() bool { return p.scaling.DeleteGroup(id) })
}

// SetGroupTags replaces the tags of a scaling group.
func (p groupPanel) SetGroupTags(id string, tags map[string]string) error {
	return p.withGroup(id, func() bool { return p.scaling.SetGroupTags(id, tags) })
}

// SetConfigurationTags replaces the tags of a scaling configuration.
func (p groupPanel) SetConfigurationTags(id string, tags map[string]string) error {
	return p.withGroup(id, func() bool { return p.scaling.SetConfigurationTags(id, tags) })
}

// Group returns a scaling group; false where there is none of that ID.
func (p groupPanel) Group(id string) (v ess.GroupView, known bool) {
	p.locked(func() { v, known = p.scaling.Group(id) })
	return v, known
}

func (p groupPanel) withGroup(id string, do func() (known bool)) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	if !do() {
		return unknown("scaling group", id)
	}
	return nil
}
