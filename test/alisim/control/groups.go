package control

import (
	"maps"

	"gpu-spot-autoscaler/test/alisim/scaling"
)

// groupPanel adds, changes and deletes scaling groups.
type groupPanel struct{ services }

// PutGroup adds a pool, or changes one without touching its instances.
func (p groupPanel) PutGroup(pool scaling.Pool) error {
	if err := pool.Validate(p.compute.Sells, p.compute.HasVSwitch); err != nil {
		return err
	}
	p.locked(func() { p.scaling.PutGroup(pool) })
	return nil
}

// DeleteGroup releases all instances of a pool at once and forgets it.
func (p groupPanel) DeleteGroup(id string) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	if !p.scaling.DeleteGroup(id) {
		return unknown("scaling group", id)
	}
	return nil
}

// SetGroupTags replaces the tags of a scaling group.
func (p groupPanel) SetGroupTags(id string, tags map[string]string) error {
	return p.withGroup(id, func(g *scaling.Group) { g.Tags = maps.Clone(tags) })
}

// SetConfigurationTags replaces the tags of a scaling configuration.
func (p groupPanel) SetConfigurationTags(id string, tags map[string]string) error {
	return p.withGroup(id, func(g *scaling.Group) { g.ConfigurationTags = maps.Clone(tags) })
}

// Group returns a scaling group; false where there is none of that ID.
func (p groupPanel) Group(id string) (v scaling.GroupView, known bool) {
	p.locked(func() { v, known = p.scaling.Group(id) })
	return v, known
}

func (p groupPanel) withGroup(id string, do func(*scaling.Group)) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	g, known := p.scaling.FindGroup(id)
	if !known {
		return unknown("scaling group", id)
	}
	do(g)
	return nil
}
