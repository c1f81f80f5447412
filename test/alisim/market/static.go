package market

import (
	"slices"
	"sync"
	"time"
)

// Static is a market whose quotes stay as they are until somebody changes them. What nobody changed comes from the
// market below. Safe for concurrent use.
type Static struct {
	base Market

	mu     sync.RWMutex
	stock  map[offering]int
	prices map[offering][]pin
}

// pin is a price that somebody has set, and from when on.
type pin struct {
	Price
	since time.Time
}

// NewStatic returns a market over base; nil means Snapshot.
func NewStatic(base Market) *Static {
	return &Static{base: orSnapshot(base), stock: map[offering]int{}, prices: map[offering][]pin{}}
}

func orSnapshot(base Market) Market {
	if base == nil {
		return Snapshot{}
	}
	return base
}

// SetStock pins how many spot instances of a type a zone carries at once: 0 takes it off sale, Unlimited lifts the
// bound.
func (s *Static) SetStock(instanceType, zone string, capacity int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock[offering{instanceType, zone}] = capacity
}

// SetPrice pins the prices of a type in a zone from a moment on, in CNY per instance-hour; spot 0 means not sold as spot. The moment is
// not before that of an earlier call; the first of an offering is told as if it had always been so. An offering that the market below
// does not know becomes available without bound, unless SetStock says otherwise.
func (s *Static) SetPrice(instanceType, zone string, spot, onDemand float64, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := offering{instanceType, zone}
	if len(s.prices[o]) == 0 {
		since = time.Time{}
	}
	s.prices[o] = append(s.prices[o], pin{Price{Spot: spot, OnDemand: onDemand}, since})
}

// Quote implements Market.
func (s *Static) Quote(instanceType, zone string, at time.Time) Quote {
	q := s.base.Quote(instanceType, zone, at)
	known := q.Spot > 0

	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range slices.Backward(s.prices[offering{instanceType, zone}]) {
		if p.since.After(at) {
			continue
		}
		q.Spot, q.OnDemand = p.Spot, p.OnDemand
		if !known {
			q.Capacity = Unlimited
		}
		break
	}
	if n, ok := s.stock[offering{instanceType, zone}]; ok {
		q.Capacity = n
	}
	return q.normalise()
}

// History implements Market. It has the moments too at which a price was pinned.
func (s *Static) History(instanceType, zone string, from, to time.Time) []PricePoint {
	points := hourly(s, instanceType, zone, from, to)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.prices[offering{instanceType, zone}] {
		if p.Spot > 0 && !p.since.Before(from) && !p.since.After(to) {
			points = append(points, PricePoint{At: p.since, Spot: p.Spot, OnDemand: p.OnDemand})
		}
	}
	slices.SortStableFunc(points, func(a, b PricePoint) int { return a.At.Compare(b.At) })
	return points
}

// NextChange implements Market: that of the market below.
func (s *Static) NextChange(after time.Time) (time.Time, bool) { return s.base.NextChange(after) }

func (s *Static) hour() time.Duration { return hourOf(s.base) }
