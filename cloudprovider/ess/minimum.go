package ess

import "k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

// Shortfall is how far a pool is below its minimum.
type Shortfall struct {
	PoolID string
	// Missing is how many instances the pool has less than its minimum. Those that were purchased and are not delivered yet count as
	// there.
	Missing int
	// Offerings are the node groups that can be bought now, by id.
	Offerings []cloudprovider.NodeGroup
}

// Shortfalls returns the pools that are below their minimum and can be bought from, by id.
//
// Up to the minimum of the scaling group, ESS buys by itself. So those instances count as there; else they would be bought
// twice. ("When the number of existing ECS instances in a scaling group is less than the minimum number of instances, Auto
// Scaling automatically adds instances to the scaling group to maintain the minimum number", Create a scaling group.)
func (p *Provider) Shortfalls() []Shortfall {
	last := p.store.Last()
	var short []Shortfall
	for _, group := range p.groups.listed() { // by id, and so by pool
		known := last.PoolOf(group.Id())
		if known == nil {
			continue
		}
		size := last.PoolSize(known.ID)
		missing := known.MinSize - max(size.Live+size.Purchased, known.Group.MinSize)
		if missing <= 0 || last.Room(group.Id(), p.config.Prices) == 0 {
			continue
		}
		if n := len(short); n == 0 || short[n-1].PoolID != known.ID {
			short = append(short, Shortfall{PoolID: known.ID, Missing: missing})
		}
		current := &short[len(short)-1]
		current.Offerings = append(current.Offerings, group)
	}
	return short
}
