package market

import (
	"io"
	"time"
)

// Tick is the step of a recorded trace.
const Tick = 195 * time.Second

// TraceOptions say how a recorded trace is laid over the simulated world.
type TraceOptions struct {
	Timeline Timeline
	// Zones maps what is simulated to a zone of the trace. A key is a zone, for every type in it, or
	// "<instance-type>/<zone>" for one offering; the longer key wins. Offerings that no key names follow the market below.
	Zones map[string]string
	// PoolSize is the Capacity of an offering while it is available; 0 means Unlimited.
	PoolSize int
	// OnDemandUSD is the recorded machine's on-demand price in USD per hour; 0 means 3.06.
	OnDemandUSD float64
}

// Trace is a market that replays recorded availability and prices. Safe for concurrent use.
type Trace struct{}

// NewTrace reads change points: availability as "zone,tick,available" and price as "zone,tick,usd_per_hour", each
// with that header. base tells on-demand prices and everything the trace does not cover; nil means Snapshot.
func NewTrace(base Market, opts TraceOptions, availability, price io.Reader) (*Trace, error) {
	panic("not yet")
}

// V100Trace replays the embedded 30 days of nine zones (see data/README.md).
func V100Trace(base Market, opts TraceOptions) (*Trace, error) { panic("not yet") }

// Quote implements Market.
func (t *Trace) Quote(instanceType, zone string, at time.Time) Quote { panic("not yet") }

// History implements Market.
func (t *Trace) History(instanceType, zone string, from, to time.Time) []PricePoint {
	panic("not yet")
}

// NextChange implements Market.
func (t *Trace) NextChange(after time.Time) (time.Time, bool) { panic("not yet") }
