package market

import (
	"sync"
	"time"
)

// Static is a market whose quotes stay as they are until somebody changes them. What nobody changed comes from the
// market below. Safe for concurrent use.
type Static struct {
	base Market

	mu     sync.RWMutex
	stock  map[offering]int
	prices map[offering]Price
}

// NewStatic returns a market over base; nil means Snapshot.
func NewStatic(base Market) *Static {
	return &Static{base: orSnapshot(base), stock: map[offering]int{}, prices: map[offering]Price{}}
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

// SetPrice pins the prices of a type in a zone, in CNY per instance-hour; spot 0 means not sold as spot. An offering
// that the market below does not know becomes available without bound, unless SetStock says otherwise.
func (s *Static) SetPrice(instanceType, zone string, spot, onDemand float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices[offering{instanceType, zone}] = Price{Spot: spot, OnDemand: onDemand}
}

// Quote implements Market.
func (s *Static) Quote(instanceType, zone string, at time.Time) Quote {
	q := s.base.Quote(instanceType, zone, at)
	known := q.Spot > 0

	s.mu.RLock()
	defer s.mu.RUnlock()
	if p, ok := s.prices[offering{instanceType, zone}]; ok {
		q.Spot, q.OnDemand = p.Spot, p.OnDemand
		if !known {
			q.Capacity = Unlimited
		}
	}
	if n, ok := s.stock[offering{instanceType, zone}]; ok {
		q.Capacity = n
	}
	return q.normalise()
}

// History implements Market. Pinned prices are told as if they had always been so.
func (s *Static) History(instanceType, zone string, from, to time.Time) []PricePoint {
	return hourly(s, instanceType, zone, from, to)
}

// NextChange implements Market: that of the market below.
func (s *Static) NextChange(after time.Time) (time.Time, bool) { return s.base.NextChange(after) }

func (s *Static) hour() time.Duration { return hourOf(s.base) }
