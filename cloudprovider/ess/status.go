package ess

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// Pools are the pools in working order as of the last refresh and the last purchase, by id, and when that refresh was; zero
// before the first.
func (p *Provider) Pools() (pools []status.Pool, refreshed time.Time) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	pools = make([]status.Pool, 0, len(p.pools))
	for _, id := range slices.Sorted(maps.Keys(p.pools)) {
		pools = append(pools, p.statusOf(p.pools[id]))
	}
	return pools, p.refreshed
}

// statusOf needs p.mu.
func (p *Provider) statusOf(pool *pool) status.Pool {
	counted := p.poolTally(pool.id)
	said := status.Pool{
		ID: pool.id, Targeting: string(pool.targeting), MinSize: pool.minSize, MaxSize: pool.maxSize,
		Live: counted.live, Purchased: counted.outstanding, Reclaiming: counted.doomed, Removing: counted.removing,
		Standby: counted.standby, Stopped: counted.stopped,
		Offerings: make([]status.Offering, 0, len(pool.byGroupID)), Purchases: []status.Purchase{},
	}
	for _, id := range slices.Sorted(maps.Keys(pool.byGroupID)) {
		said.Offerings = append(said.Offerings, p.offeringStatus(pool, id, pool.byGroupID[id]))
	}
	for _, bought := range p.purchases {
		if missing := bought.outstanding(); bought.poolID == pool.id && missing > 0 {
			said.Purchases = append(said.Purchases, p.purchaseStatus(bought, missing))
		}
	}
	slices.SortFunc(said.Purchases, func(a, b status.Purchase) int {
		return cmp.Or(a.Requested.Compare(b.Requested), cmp.Compare(a.Offering, b.Offering))
	})
	return said
}

// offeringStatus needs p.mu.
func (p *Provider) offeringStatus(pool *pool, id string, known *knownOffering) status.Offering {
	counted := p.tally(id)
	said := status.Offering{
		ID: id, InstanceType: known.InstanceType, Zone: known.Zone, PurchaseOption: string(known.Purchase),
		Live: counted.live, Purchased: counted.outstanding, Failed: counted.failed,
	}
	if price, priced := p.priceOf(pool, known.offering); priced {
		said.Price = &price
	}
	if known.priceCap > 0 {
		said.PriceCap = &known.priceCap
	}
	if handle := p.handles[id]; handle != nil {
		said.Room = p.headroom(handle)
	}
	switch {
	case said.Room > 0:
	case pool.unbuyable != "":
		said.Hindrance = status.HindranceOutOfOrder
	case known.retired:
		said.Hindrance = status.HindranceRetired
	case !p.affordable(pool, known):
		said.Hindrance = status.HindrancePrice
	default:
		said.Hindrance = status.HindranceSize
	}
	return said
}

// purchaseStatus needs p.mu.
func (p *Provider) purchaseStatus(bought *purchase, missing int) status.Purchase {
	said := status.Purchase{
		Offering: p.groupIDOf(bought.poolID, bought.offering), Count: bought.request.Delta, Missing: missing,
		Requested: bought.requested.UTC(), Activity: bought.activityID,
	}
	if !bought.accepted.IsZero() {
		accepted := bought.accepted.UTC()
		said.Accepted = &accepted
	}
	return said
}
