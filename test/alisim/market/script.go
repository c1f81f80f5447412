package market

import (
	"time"
)

// Change is one event of a Script. Fields left nil stay as they were.
type Change struct {
	// At is the market time of the event.
	At time.Duration
	// InstanceType and Zone say which offerings change; empty means all.
	InstanceType, Zone string
	// Stock is how many spot instances a zone carries at once: 0 for none, Unlimited for no bound.
	Stock *int
	// Spot and OnDemand are CNY per instance-hour.
	Spot, OnDemand *float64
}

// Script is a market that follows a list of changes over the market below. Safe for concurrent use.
type Script struct {
	base     Market
	timeline Timeline

	stock    scripted[int]
	spot     scripted[float64]
	onDemand scripted[float64]
	times    steps[struct{}]
}

// NewScript returns a market that applies the changes, in any order given, over base; nil means Snapshot. Of two
// changes at one time the more exactly addressed wins, then the later in the list.
func NewScript(base Market, timeline Timeline, changes []Change) *Script {
	s := &Script{
		base: orSnapshot(base), timeline: timeline,
		stock: scripted[int]{}, spot: scripted[float64]{}, onDemand: scripted[float64]{},
	}
	for _, c := range changes {
		key := offering{c.InstanceType, c.Zone}
		s.stock.add(key, c.At, c.Stock)
		s.spot.add(key, c.At, c.Spot)
		s.onDemand.add(key, c.At, c.OnDemand)
		s.times = append(s.times, step[struct{}]{at: c.At})
	}
	s.stock.sort()
	s.spot.sort()
	s.onDemand.sort()
	s.times.sort()
	return s
}

// Quote implements Market.
func (s *Script) Quote(instanceType, zone string, at time.Time) Quote {
	now := s.timeline.Elapsed(at)
	q := s.base.Quote(instanceType, zone, at)
	if spot, ok := s.spot.at(instanceType, zone, now); ok {
		if q.Spot == 0 {
			q.Capacity = Unlimited // the market below did not sell it; the script does
		}
		q.Spot = spot
	}
	if onDemand, ok := s.onDemand.at(instanceType, zone, now); ok {
		q.OnDemand = onDemand
	} else if q.OnDemand == 0 && q.Spot > 0 {
		q.OnDemand = OnDemandPrice(instanceType, zone)
	}
	if stock, ok := s.stock.at(instanceType, zone, now); ok {
		q.Capacity = stock
	}
	return q.normalise()
}

// History implements Market.
func (s *Script) History(instanceType, zone string, from, to time.Time) []PricePoint {
	return hourly(s, instanceType, zone, from, to)
}

// NextChange implements Market.
func (s *Script) NextChange(after time.Time) (time.Time, bool) {
	elapsed, ok := s.times.after(s.timeline.Elapsed(after))
	below, belowOK := s.base.NextChange(after)
	return earlier(s.timeline.Moment(elapsed), ok, below, belowOK)
}

func (s *Script) hour() time.Duration { return s.timeline.Hour() }

// scripted are the changes of one field by whom they address; an empty type or zone addresses all.
type scripted[T any] map[offering]steps[T]

func (s scripted[T]) add(key offering, at time.Duration, value *T) {
	if value != nil {
		s[key] = append(s[key], step[T]{at, *value})
	}
}

func (s scripted[T]) sort() {
	for _, list := range s {
		list.sort()
	}
}

// at returns the newest value that addresses the offering.
func (s scripted[T]) at(instanceType, zone string, now time.Duration) (T, bool) {
	var newest step[T]
	found := false
	for _, key := range []offering{{"", ""}, {"", zone}, {instanceType, ""}, {instanceType, zone}} {
		if last, ok := s[key].at(now); ok && (!found || last.at >= newest.at) {
			newest, found = last, true
		}
	}
	return newest.value, found
}
