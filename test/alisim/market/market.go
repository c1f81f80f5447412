// Package market is the simulated spot market: what an instance type costs in a zone, and whether it can be had,
// at any moment.
//
// Markets are layers. Snapshot answers from published prices; Trace and Script change what a layer below says as
// time goes by; Static lets a test pin values by hand over any of them.
package market

import (
	"time"
)

// Unlimited is the Capacity of an offering that never runs out.
const Unlimited = -1

// Quote is the state of one instance type in one zone at one moment. Prices are CNY per instance-hour.
type Quote struct {
	// Available says whether spot instances can be bought and kept. Where it turns false, running ones are reclaimed.
	Available bool
	// Capacity is how many spot instances the zone carries at once, those already running included; Unlimited for
	// no bound. It is 0 where Available is false.
	Capacity int
	// Spot is 0 where the type is not sold as spot in the zone.
	Spot float64
	// OnDemand is 0 where the type is not sold on demand in the zone. On-demand stock is not modelled.
	OnDemand float64
}

// PricePoint is one entry of a price history. Prices are CNY per instance-hour.
type PricePoint struct {
	At             time.Time
	Spot, OnDemand float64
}

// Market tells prices and stock. Implementations are safe for concurrent use. All times are those of the caller's
// clock; a market that runs faster than the clock converts them itself (see Timeline).
type Market interface {
	// Quote returns the state at one moment; the zero Quote for a type or zone nobody knows.
	Quote(instanceType, zone string, at time.Time) Quote
	// History returns hourly prices from and to inclusive, oldest first, and the price at to if it moved since the
	// full hour. At most the newest HistoryHours are kept. Empty where the type is not sold as spot.
	History(instanceType, zone string, from, to time.Time) []PricePoint
	// NextChange returns the first moment after the given one at which any quote may differ, false if there is none.
	// Values pinned by hand on a Static are not announced.
	NextChange(after time.Time) (time.Time, bool)
}

// normalise keeps the fields of a quote consistent with each other.
func (q Quote) normalise() Quote {
	if q.Spot <= 0 {
		q.Capacity = 0
	}
	q.Available = q.Capacity != 0
	return q
}
