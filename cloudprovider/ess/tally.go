package ess

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

// tally is how much there is of one node group. It is derived, and never changed after it was made.
type tally struct {
	live int
	// outstanding are bought, or being bought, and have not come.
	outstanding int
	// failed did not come, and core has not yet acknowledged it.
	failed    int
	instances []cloudprovider.Instance
}

// target counts failed instances too: core lowers it itself, by deleting them, after it has backed the group off.
func (t *tally) target() int { return t.live + t.outstanding + t.failed }

// poolTally is how much there is of one pool.
type poolTally struct {
	live, outstanding, doomed, removing int
	// standby and stopped serve nothing and are none of the live; protected is how many of the live are.
	standby, stopped, protected int
	lastScaleUp                 time.Time
}

var (
	emptyTally     = &tally{}
	emptyPoolTally = &poolTally{}
)

// tally needs p.mu.
func (p *Provider) tally(groupID string) *tally {
	if counted := p.tallies[groupID]; counted != nil {
		return counted
	}
	return emptyTally
}

// poolTally needs p.mu.
func (p *Provider) poolTally(poolID string) *poolTally {
	if counted := p.poolTallies[poolID]; counted != nil {
		return counted
	}
	return emptyPoolTally
}

// retally counts anew from instances, purchases, removals and the doomed. Needs p.mu for writing.
func (p *Provider) retally() {
	count := counting{
		provider: p,
		groups:   make(map[string]*tally, len(p.tallies)),
		pools:    make(map[string]*poolTally, len(p.poolTallies)),
		broken:   sets.New[string](),
	}
	for _, bought := range p.purchases {
		count.broken = count.broken.Union(p.undelivered(bought))
	}
	for _, instance := range p.instances {
		count.instance(instance)
	}
	for _, bought := range p.purchases {
		count.purchase(bought)
	}
	for _, group := range count.groups {
		slices.SortFunc(group.instances, func(a, b cloudprovider.Instance) int { return strings.Compare(a.Id, b.Id) })
	}
	p.tallies, p.poolTallies = count.groups, count.pools
}

type counting struct {
	provider *Provider
	groups   map[string]*tally
	pools    map[string]*poolTally
	// broken are instances of gangs that came short and those that the cloud rolls back: nothing may be placed on them.
	broken sets.Set[string]
}

func (c *counting) of(poolID string, offering offering) (*tally, *poolTally) {
	groupID := c.provider.groupIDOf(poolID, offering)
	group, pool := c.groups[groupID], c.pools[poolID]
	if group == nil {
		group = &tally{}
		c.groups[groupID] = group
	}
	if pool == nil {
		pool = &poolTally{}
		c.pools[poolID] = pool
	}
	return group, pool
}

func (c *counting) instance(instance alicloud.ScalingInstance) {
	group, pool := c.of(instance.ScalingGroupID, c.provider.offeringOf(instance))
	if instance.Created.After(pool.lastScaleUp) {
		pool.lastScaleUp = instance.Created
	}
	c.inPool(pool, instance)
	state := cloudprovider.InstanceRunning
	switch {
	case c.broken.Has(instance.ID), c.provider.outOfService.Has(instance.ID), c.provider.doomed.Has(instance.ID):
		state = cloudprovider.InstanceDeleting // so that core does not wait for its Node
	default:
		group.live++
		if strings.HasPrefix(instance.LifecycleState, alicloud.LifecyclePending) {
			state = cloudprovider.InstanceCreating
		}
	}
	group.instances = append(group.instances, cloudprovider.Instance{
		Id:     c.provider.providerIDOf(instance.ID),
		Status: &cloudprovider.InstanceStatus{State: state},
	})
}

// inPool counts the instance as what it is now: core does not look at pools, and what keeps them above their minimum and
// below their maximum must not wait for the next loop.
func (c *counting) inPool(pool *poolTally, instance alicloud.ScalingInstance) {
	where := c.provider.standingOf(instance)
	if c.broken.Has(instance.ID) {
		where = leaving
	}
	switch where {
	case leaving:
		pool.removing++
	case reclaiming:
		pool.doomed++
	case standingBy:
		pool.standby++
	case stopped:
		pool.stopped++
	default:
		pool.live++
		if isKept(instance) {
			pool.protected++
		}
	}
}

func (c *counting) purchase(bought *purchase) {
	group, pool := c.of(bought.poolID, bought.offering)
	if bought.requested.After(pool.lastScaleUp) {
		pool.lastScaleUp = bought.requested
	}
	outstanding := bought.outstanding()
	group.outstanding += outstanding
	pool.outstanding += outstanding
	group.failed += len(bought.placeholders)
	for _, id := range bought.placeholders {
		group.instances = append(group.instances, cloudprovider.Instance{
			Id:     id,
			Status: &cloudprovider.InstanceStatus{State: cloudprovider.InstanceCreating, ErrorInfo: bought.failure},
		})
	}
}

// headroom is how many more instances of the offering may be bought. Needs p.mu.
func (p *Provider) headroom(o *Offering) int {
	pool, known := p.pools[o.poolID], p.knownOffering(o)
	if pool == nil || known == nil || known.retired || pool.unbuyable != "" || !p.affordable(pool, known) {
		return 0
	}
	counted := p.poolTally(pool.id)
	own := pool.maxSize - counted.live - counted.outstanding
	// The scaling group's maximum counts every instance until it is gone.
	group := pool.group.MaxSize - counted.live - counted.outstanding - counted.doomed - counted.removing - counted.standby - counted.stopped
	return max(0, min(own, group))
}

// priceOf is the price per node-hour of the offering; that of a whole pool is its dearest offering's. Needs p.mu.
func (p *Provider) priceOf(pool *pool, wanted offering) (float64, bool) {
	return p.dearest(pool, wanted, func(pricing.Offering) float64 { return 0 })
}

// dearest is the same with a surcharge on each price. Needs p.mu.
func (p *Provider) dearest(pool *pool, wanted offering, surcharge func(pricing.Offering) float64) (float64, bool) {
	if pool.targeting != targetWhole {
		price, priced := p.Prices.Price(wanted.priced())
		return price * (1 + surcharge(wanted.priced())), priced
	}
	dearest := 0.0
	for _, offered := range pool.offerings {
		price, priced := p.Prices.Price(offered.priced())
		if !priced {
			return 0, false
		}
		dearest = max(dearest, price*(1+surcharge(offered.priced())))
	}
	return dearest, true
}
