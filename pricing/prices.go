package pricing

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// place is an instance type in a zone. The zone is "" if a price was quoted for no particular zone.
type place struct{ instanceType, zone string }

// point is a price and when it was seen.
type point struct {
	price float64
	seen  time.Time
}

// prices are the last known ones. They are not safe for concurrent use.
type prices struct {
	// spot and listed come from the spot price history: the market price, and the on-demand list price beside it.
	spot, listed map[place]point
	// past are the points of the history that was looked up last, in order of time.
	past map[place][]alicloud.SpotPrice
	// quoted are on-demand prices with the account's discounts. They take precedence over listed ones.
	quoted map[place]point
}

func newPrices() prices {
	return prices{spot: map[place]point{}, listed: map[place]point{}, quoted: map[place]point{}, past: map[place][]alicloud.SpotPrice{}}
}

// forget drops the prices that were seen before a time, but for those of the instance types.
func (p prices) forget(before time.Time, but sets.Set[string]) {
	for _, among := range []map[place]point{p.spot, p.listed, p.quoted} {
		maps.DeleteFunc(among, func(at place, last point) bool { return last.seen.Before(before) && !but.Has(at.instanceType) })
	}
	maps.DeleteFunc(p.past, func(at place, _ []alicloud.SpotPrice) bool {
		_, spot := p.spot[at]
		_, listed := p.listed[at]
		return !spot && !listed
	})
}

// ever is a time since which every price was seen.
var ever time.Time

// of returns the price of the offering, or of the closest one with a price, that was seen at the given time or later.
func (p prices) of(o Offering, since time.Time) (float64, bool) {
	found, ok := p.find(o, since)
	return found.price, ok
}

// find returns the price of exactly this offering if there is one. Otherwise it returns the on-demand price of a spot offering, and
// the highest on-demand price in other zones.
func (p prices) find(o Offering, since time.Time) (point, bool) {
	if found, ok := p.exactly(o, since); ok {
		return found, true
	}
	if o.Spot {
		return p.find(Offering{InstanceType: o.InstanceType, Zone: o.Zone}, since)
	}
	return p.dearestOnDemand(o.InstanceType, since)
}

// exactly returns the price of this offering and no other.
func (p prices) exactly(o Offering, since time.Time) (point, bool) {
	at := place{o.InstanceType, o.Zone}
	if o.anyZone() {
		if o.Spot {
			return dearest(o.InstanceType, p.spot, since)
		}
		return p.dearestOnDemand(o.InstanceType, since)
	}
	if o.Spot {
		return seen(p.spot, at, since)
	}
	if found, ok := seen(p.quoted, at, since); ok {
		return found, true
	}
	return seen(p.listed, at, since)
}

func seen(among map[place]point, at place, since time.Time) (point, bool) {
	found, ok := among[at]
	return found, ok && !found.seen.Before(since)
}

// dearestOnDemand returns a price for zones without one of their own: on-demand prices differ little between the zones of a
// region.
func (p prices) dearestOnDemand(instanceType string, since time.Time) (point, bool) {
	if found, ok := dearest(instanceType, p.quoted, since); ok {
		return found, true
	}
	return dearest(instanceType, p.listed, since)
}

func dearest(instanceType string, among map[place]point, since time.Time) (point, bool) {
	var best point
	found := false
	for at, candidate := range among {
		if at.instanceType != instanceType || candidate.seen.Before(since) {
			continue
		}
		if !found || candidate.price > best.price {
			best, found = candidate, true
		}
	}
	return best, found
}
