package ess

import (
	"maps"

	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
)

// Shortfall is what a pool lacks of its minimum.
type Shortfall struct {
	PoolID string
	// Missing is how many instances there are less than the minimum, those on their way included.
	Missing int
	// Offerings are those that can be bought now, by id.
	Offerings []cloudprovider.NodeGroup
}

// Shortfalls returns the pools that are below their minimum and can be bought of, by id.
//
// Up to the minimum of the scaling group ESS buys by itself, so that much counts as there: it would be bought twice. ("When
// the number of existing ECS instances in a scaling group is less than the minimum number of instances, Auto Scaling
// automatically adds instances to the scaling group to maintain the minimum number", Create a scaling group.)
func (p *Provider) Shortfalls() []Shortfall {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var short []Shortfall
	for _, group := range p.groups { // by id, and so by pool
		offered := group.(*Offering)
		pool := p.pools[offered.poolID]
		if pool == nil {
			continue
		}
		counted := p.poolTally(pool.id)
		missing := pool.minSize - max(counted.live+counted.outstanding, pool.group.MinSize)
		if missing <= 0 || p.headroom(offered) == 0 {
			continue
		}
		if last := len(short) - 1; last < 0 || short[last].PoolID != pool.id {
			short = append(short, Shortfall{PoolID: pool.id, Missing: missing})
		}
		last := &short[len(short)-1]
		last.Offerings = append(last.Offerings, group)
	}
	return short
}

// SetMinimums has Offering.MinSize of each of these groups return the size, until it is called again. Those of all others
// return 0.
func (p *Provider) SetMinimums(sizes map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.minimums = maps.Clone(sizes)
}
