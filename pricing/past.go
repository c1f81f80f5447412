package pricing

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// PriceAt returns what the offering cost at a time: a spot offering what the history of the last day says, as far as that reaches, and any
// other its present Price. It does not call the source.
func (b *Book) PriceAt(o Offering, at time.Time) (perHour float64, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.prices.at(o, at)
}

// MarketCost returns what an instance of the offering costs from one time to another if it is billed at the market price of each
// moment. It does not call the source.
func (b *Book) MarketCost(o Offering, from, to time.Time) (cost float64, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	changes := b.prices.past[place{o.InstanceType, o.Zone}]
	if !o.Spot {
		changes = nil
	}
	for from.Before(to) {
		price, known := b.prices.at(o, from)
		if !known {
			return 0, false
		}
		until := to
		if next := after(changes, from); next < len(changes) && changes[next].Time.Before(to) {
			until = changes[next].Time
		}
		cost += price * until.Sub(from).Hours()
		from = until
	}
	return cost, true
}

// at returns the price at a time.
func (p prices) at(o Offering, at time.Time) (float64, bool) {
	if o.Spot {
		points := p.past[place{o.InstanceType, o.Zone}]
		if next := after(points, at); next > 0 {
			return points[next-1].Spot, true
		}
	}
	return p.of(o, ever)
}

// after returns the index of the first point that is later than the time.
func after(points []alicloud.SpotPrice, at time.Time) int {
	next, _ := slices.BinarySearchFunc(points, at, func(point alicloud.SpotPrice, at time.Time) int {
		if point.Time.After(at) {
			return 1
		}
		return -1
	})
	return next
}

// byZone returns the points with a spot price by their zone, in order of time.
func byZone(points []alicloud.SpotPrice) map[string][]alicloud.SpotPrice {
	zones := map[string][]alicloud.SpotPrice{}
	for _, point := range points {
		if point.Spot > 0 {
			zones[point.ZoneID] = append(zones[point.ZoneID], point)
		}
	}
	for _, points := range zones {
		slices.SortStableFunc(points, func(a, b alicloud.SpotPrice) int { return a.Time.Compare(b.Time) })
	}
	return zones
}
