package market

import "time"

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
type Script struct{}

// NewScript returns a market that applies the changes, in any order given, over base; nil means Snapshot.
func NewScript(base Market, timeline Timeline, changes []Change) *Script { panic("not yet") }

// Quote implements Market.
func (s *Script) Quote(instanceType, zone string, at time.Time) Quote { panic("not yet") }

// History implements Market.
func (s *Script) History(instanceType, zone string, from, to time.Time) []PricePoint {
	panic("not yet")
}

// NextChange implements Market.
func (s *Script) NextChange(after time.Time) (time.Time, bool) { panic("not yet") }
