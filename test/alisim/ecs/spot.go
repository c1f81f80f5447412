package ecs

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/market"
)

// WatchMarket looks at all running spot instances whenever a quote may have changed.
func (c *Compute) WatchMarket() {
	now := c.cloud.Clock.Now()
	c.Meter.Read(c.machines.Items, now)
	// It goes by instances because the order of the map of offerings is random, and a run must be repeatable.
	checked := map[*offering]bool{}
	for _, i := range c.machines.Items {
		if i.IsSpot() && !checked[i.sold] {
			checked[i.sold] = true
			c.checkOffering(i.sold, now)
		}
	}
	if next, more := c.Market.NextChange(now); more {
		c.cloud.At(next, func(time.Time) { c.WatchMarket() })
	}
}

// checkOffering gives notice to the running spot instances that the market does not carry any more: all where the
// offering is gone, those whose price limit is passed, and the oldest where there are more than the zone carries.
func (c *Compute) checkOffering(o *offering, now time.Time) {
	q := c.Market.Quote(o.instanceType, o.zone, now)
	keep := o.spot.Len()
	if q.Capacity != market.Unlimited {
		keep = q.Capacity
	}
	excess := -keep
	for _, i := range o.spot.Items {
		if !i.Recycling() {
			excess++
		}
	}
	for _, i := range o.spot.Items {
		if i.Recycling() || now.Before(i.ProtectedUntil) {
			continue
		}
		tooDear := i.PriceLimit > 0 && q.Spot > i.PriceLimit
		if tooDear || excess > 0 {
			c.Reclaim(i, now)
			excess--
		}
	}
}

// Reclaim gives an instance its notice: it is locked for recycling now and released when the notice has run out.
func (c *Compute) Reclaim(i *Instance, now time.Time) {
	if i.Recycling() || i.Status == Released {
		return
	}
	deadline := now.Add(c.cloud.Takes.Notice)
	i.Deadline = deadline
	c.recycling.Add(i)
	c.watcher.Noticed(i)
	c.cloud.At(deadline, func(time.Time) {
		if !i.Deadline.Equal(deadline) {
			return // withdrawn
		}
		c.Release(i)
		c.watcher.Unhealthy(i)
	})
}

// Withdraw takes the notice back.
func (c *Compute) Withdraw(i *Instance) {
	i.Deadline = time.Time{}
	c.recycling.Remove(i)
}

// SetStock says how many spot instances of a type a zone carries at once, running ones included; market.Unlimited
// lifts the bound. Running instances beyond it are reclaimed once their protected time is over.
func (c *Compute) SetStock(instanceType, zone string, stock int) {
	c.Market.SetStock(instanceType, zone, stock)
	c.checkOffering(c.offeringOf(instanceType, zone), c.cloud.Clock.Now())
}

// SetOnDemandStock says how many pay-as-you-go instances of a type a zone carries at once; running ones stay.
func (c *Compute) SetOnDemandStock(instanceType, zone string, stock int) {
	c.offeringOf(instanceType, zone).onDemandStock = stock
}

// SetPrice says what an instance-hour costs, in CNY. Running instances whose price limit is passed are reclaimed once
// their protected time is over.
func (c *Compute) SetPrice(instanceType, zone string, spot, onDemand float64) {
	c.Meter.Read(c.machines.Items, c.cloud.Clock.Now())
	c.Market.SetPrice(instanceType, zone, spot, onDemand, c.cloud.Clock.Now())
	c.checkOffering(c.offeringOf(instanceType, zone), c.cloud.Clock.Now())
}
