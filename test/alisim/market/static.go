package market

import "time"

// Static is a market whose quotes stay as they are until somebody changes them. What nobody changed comes from the
// market below. Safe for concurrent use.
type Static struct{ base Market }

// NewStatic returns a market over base; nil means Snapshot.
func NewStatic(base Market) *Static { return &Static{base: base} }

// SetStock pins how many spot instances of a type a zone carries at once: 0 takes it off sale, Unlimited lifts the
// bound.
func (s *Static) SetStock(instanceType, zone string, capacity int) { panic("not yet") }

// SetPrice pins the prices of a type in a zone, in CNY per instance-hour. An offering that the market below does not
// know becomes available without bound, unless SetStock says otherwise.
func (s *Static) SetPrice(instanceType, zone string, spot, onDemand float64) { panic("not yet") }

// Quote implements Market.
func (s *Static) Quote(instanceType, zone string, at time.Time) Quote { panic("not yet") }

// History implements Market.
func (s *Static) History(instanceType, zone string, from, to time.Time) []PricePoint {
	panic("not yet")
}

// NextChange implements Market: that of the market below.
func (s *Static) NextChange(after time.Time) (time.Time, bool) { panic("not yet") }
