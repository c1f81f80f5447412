package alisim

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/market"
)

type offeringKey struct{ instanceType, zone string }

// offering counts what runs of a type in a zone.
type offering struct {
	offeringKey
	// spot lists running spot instances, doomed ones included.
	spot     roster[*instance]
	onDemand int
	// onDemandStock is how many pay-as-you-go instances the zone carries; market.Unlimited means no bound.
	onDemandStock int
}

func (c *cloud) offeringOf(instanceType, zone string) *offering {
	key := offeringKey{instanceType, zone}
	o, known := c.offerings[key]
	if !known {
		o = &offering{offeringKey: key, onDemandStock: market.Unlimited}
		c.offerings[key] = o
	}
	return o
}

func (o *offering) hasSpot(capacity int) bool {
	return capacity == market.Unlimited || o.spot.len() < capacity
}

func (o *offering) hasOnDemand() bool {
	return o.onDemandStock == market.Unlimited || o.onDemand < o.onDemandStock
}

func (o *offering) take(i *instance) {
	if i.isSpot() {
		o.spot.add(i)
	} else {
		o.onDemand++
	}
}

func (o *offering) give(i *instance) {
	if i.isSpot() {
		o.spot.remove(i)
	} else {
		o.onDemand--
	}
}

// watchMarket looks at all running spot instances whenever a quote may have changed.
func (c *cloud) watchMarket() {
	now := c.clock.Now()
	c.checkMarket(now)
	if next, more := c.market.NextChange(now); more {
		c.at(next, func(time.Time) { c.watchMarket() })
	}
}

func (c *cloud) checkMarket(now time.Time) {
	// Instances, not the map of offerings, are walked: what happens must not hang on the order of a map.
	checked := map[*offering]bool{}
	for _, i := range c.machines.items {
		if i.isSpot() && !checked[i.sold] {
			checked[i.sold] = true
			c.checkOffering(i.sold, now)
		}
	}
}

// checkOffering gives notice to the running spot instances that the market does not carry any more: all where the
// offering is gone, those whose price limit is passed, and the oldest where there are more than the zone carries.
func (c *cloud) checkOffering(o *offering, now time.Time) {
	q := c.market.Quote(o.instanceType, o.zone, now)
	keep := o.spot.len()
	if q.Capacity != market.Unlimited {
		keep = q.Capacity
	}
	excess := -keep
	for _, i := range o.spot.items {
		if !i.recycling() {
			excess++
		}
	}
	for _, i := range o.spot.items {
		if i.recycling() || now.Before(i.protectedUntil) {
			continue
		}
		tooDear := i.priceLimit > 0 && q.Spot > i.priceLimit
		if tooDear || excess > 0 {
			c.reclaim(i, now)
			excess--
		}
	}
}

// reclaim gives an instance its notice: it is locked for recycling now and released when the notice has run out.
func (c *cloud) reclaim(i *instance, now time.Time) {
	if i.recycling() || i.status == statusReleased {
		return
	}
	deadline := now.Add(c.world.NoticePeriod.Duration)
	i.deadline = deadline
	c.recycling.add(i)
	c.remedy(i)
	c.at(deadline, func(time.Time) {
		if !i.deadline.Equal(deadline) {
			return // withdrawn
		}
		c.release(i)
		c.lookAfter(i.group)
	})
}

// withdraw takes the notice back.
func (c *cloud) withdraw(i *instance) {
	i.deadline = time.Time{}
	c.recycling.remove(i)
}
