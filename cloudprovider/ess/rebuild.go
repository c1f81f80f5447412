package ess

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
)

// rebuild makes the pools and node groups anew, and returns the offerings of which prices are wanted.
func (p *Provider) rebuild(seen *observation) []pricing.Offering {
	left := map[string][]offering{}
	for _, instance := range seen.instances {
		if !isBare(instance) {
			left[instance.ScalingGroupID] = append(left[instance.ScalingGroupID], offeringOf(instance))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bought := range p.purchases {
		if bought.targeting != targetWhole && bought.offering.InstanceType != "" {
			left[bought.poolID] = append(left[bought.poolID], bought.offering)
		}
	}
	pools := make(map[string]*pool, len(seen.groups))
	priced := sets.New[pricing.Offering]()
	for _, group := range seen.groups {
		built := p.rebuildPool(seen, group, left[group.ID])
		if built == nil {
			continue
		}
		pools[group.ID] = built
		for _, offered := range built.offerings {
			priced.Insert(offered.priced())
		}
		for _, offered := range built.byGroupID {
			if offered.retired {
				priced.Insert(offered.priced())
			}
		}
	}
	p.pools, p.shapes = pools, maps.Clone(p.facts.types)
	p.idle(seen.problems)
	p.guess()
	p.regroup()
	p.retally()
	p.expose()
	p.refreshed = seen.at
	return priced.UnsortedList()
}

// rebuildPool returns the pool. One that is out of order stays as it was when it last was not, so that what is on its way
// counts, and nothing is bought of it; it is nil where it never was in order. Needs p.mu.
func (p *Provider) rebuildPool(seen *observation, group alicloud.ScalingGroup, left []offering) *pool {
	source := poolSource{region: p.Region, group: group, whole: p.ignoresTargeting(group.ID), left: left}
	if bounds, named := p.specs[group.ID]; named {
		source.bounds = &bounds
	}
	if p.Overrides != nil {
		source.overrides = p.Overrides(group.ID)
	}
	built, partial, broken := buildPool(source, p.facts)
	if broken != nil {
		seen.problems[problem{group.ID, broken.Reason}] = broken.Err.Error()
		return p.lastGood(group.ID, broken)
	}
	p.block(built, seen.problems)
	if len(partial) > 0 {
		seen.problems[problem{group.ID, "left_out"}] = errors.Join(partial...).Error()
	}
	for reason, message := range built.hazards() {
		if _, worse := seen.problems[problem{group.ID, reason}]; !worse {
			seen.problems[problem{group.ID, reason}] = message
		}
	}
	if stale := p.stalePrices(built); stale != "" {
		seen.problems[problem{group.ID, "stale_price"}] = stale
	}
	p.tellReserve(built)
	return built
}

// lastGood is the pool as it was when it last was in order, unbuyable; nil where it never was. Needs p.mu.
func (p *Provider) lastGood(poolID string, broken *PoolError) *pool {
	last := p.pools[poolID]
	if last == nil {
		return nil
	}
	kept := *last
	kept.unbuyable = broken.Err.Error()
	return &kept
}

// tellReserve says, once for each pair of maxima, that a pool at its maximum could not replace what is being reclaimed:
// the scaling group counts that until it is released.
func (p *Provider) tellReserve(pool *pool) {
	own, group := pool.maxSize, pool.group.MaxSize
	if pool.purchase != PurchaseSpot || own < group {
		return
	}
	p.reports.once(fmt.Sprintf("reserve/%s/%d/%d", pool.id, own, group), func() {
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolWithoutReserve", "Pool %s may grow to %d, and its scaling group holds no more than %d: "+
			"at the maximum an instance under reclaim is replaced only after its release. Set %smax-size lower, or raise the group's maximum",
			pool.id, own, group, api.Prefix)
	})
}

// regroup makes the list of node groups, with one handle per id for ever. Needs p.mu for writing.
func (p *Provider) regroup() {
	var ids []string
	for _, pool := range p.pools {
		for id, known := range pool.byGroupID {
			ids = append(ids, id)
			if p.handles[id] != nil {
				continue
			}
			p.handles[id] = &Offering{provider: p, id: id, poolID: pool.id, offering: known.offering}
		}
	}
	slices.SortFunc(ids, strings.Compare)
	groups := make([]cloudprovider.NodeGroup, 0, len(ids))
	for _, id := range ids {
		groups = append(groups, p.handles[id])
	}
	p.groups = groups
}

// expose sets the gauges of the pools. Needs p.mu.
func (p *Provider) expose() {
	poolTargeting.Reset()
	poolInstances.Reset()
	queueLength.Reset()
	for id, pool := range p.pools {
		poolTargeting.WithLabelValues(id, string(pool.targeting), string(p.evidenceFor(pool))).Set(1)
		counted := p.poolTally(id)
		for state, n := range map[string]int{
			"live": counted.live, "outstanding": counted.outstanding, "reclaiming": counted.doomed, "removing": counted.removing,
			"standby": counted.standby, "stopped": counted.stopped, "protected": counted.protected,
		} {
			poolInstances.WithLabelValues(id, state).Set(float64(n))
		}
		queueLength.WithLabelValues(id).Set(float64(len(p.waiting(id))))
	}
}
