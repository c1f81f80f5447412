package market

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"time"
)

// Tick is the step of a recorded trace.
const Tick = 195 * time.Second

// recordedOnDemandUSD is what one V100 cost on demand, in USD per hour, where the embedded trace was recorded.
const recordedOnDemandUSD = 3.06

// TraceOptions say how a recorded trace is laid over the simulated world.
type TraceOptions struct {
	Timeline Timeline
	// Zones maps what is simulated to a zone of the trace. A key is a zone, for every type in it, or
	// "<instance-type>/<zone>" for one offering; the longer key wins. Offerings that no key names follow the market below.
	Zones map[string]string
	// PoolSize is the Capacity of an offering while it is available; 0 means Unlimited.
	PoolSize int
	// OnDemandUSD is the recorded machine's on-demand price in USD per hour; 0 means 3.06, that of the embedded trace.
	OnDemandUSD float64
}

// Trace is a market that replays recorded availability and prices. A recorded price counts as a ratio of the recorded
// machine's on-demand price, and is applied to the on-demand price of the simulated type: the pairing of a recording
// with another cloud's types and zones is synthetic. Before its first and after its last change point a recording
// stands still. Safe for concurrent use.
type Trace struct {
	base     Market
	opts     TraceOptions
	recorded recording
	times    steps[struct{}]
}

// NewTrace reads change points: availability as "zone,tick,available" and price as "zone,tick,usd_per_hour", each
// with that header, ticks of a zone in ascending order. base tells on-demand prices and everything the trace does not
// cover; nil means Snapshot. An error names the line, or the zone of opts that the recording does not have.
func NewTrace(base Market, opts TraceOptions, availability, price io.Reader) (*Trace, error) {
	recorded, err := readRecording(availability, price)
	if err != nil {
		return nil, err
	}
	opts.OnDemandUSD = cmp.Or(opts.OnDemandUSD, recordedOnDemandUSD)
	t := &Trace{base: orSnapshot(base), opts: opts, recorded: recorded}
	for _, zone := range opts.Zones {
		if len(recorded.available[zone]) == 0 || len(recorded.usd[zone]) == 0 {
			return nil, fmt.Errorf("market: zone %q is not in the trace", zone)
		}
		t.times = append(t.times, timesOf(recorded.available[zone])...)
		t.times = append(t.times, timesOf(recorded.usd[zone])...)
	}
	t.times.sort()
	return t, nil
}

// V100Trace replays the embedded 30 days of nine zones (see data/v100-9zone/README.md).
func V100Trace(base Market, opts TraceOptions) (*Trace, error) {
	availability, err := data.Open("data/v100-9zone/availability.csv")
	if err != nil {
		return nil, err
	}
	defer availability.Close()
	price, err := data.Open("data/v100-9zone/price.csv")
	if err != nil {
		return nil, err
	}
	defer price.Close()
	return NewTrace(base, opts, availability, price)
}

// Quote implements Market.
func (t *Trace) Quote(instanceType, zone string, at time.Time) Quote {
	q := t.base.Quote(instanceType, zone, at)
	source, ok := t.source(instanceType, zone)
	if !ok {
		return q
	}
	now := t.opts.Timeline.Elapsed(at)
	if q.OnDemand == 0 {
		q.OnDemand = OnDemandPrice(instanceType, zone)
	}
	q.Spot = roundToMill(q.OnDemand * valueAt(t.recorded.usd[source], now) / t.opts.OnDemandUSD)
	q.Capacity = 0
	if valueAt(t.recorded.available[source], now) {
		q.Capacity = cmp.Or(t.opts.PoolSize, Unlimited)
	}
	return q.normalise()
}

// source returns the recorded zone that an offering follows.
func (t *Trace) source(instanceType, zone string) (string, bool) {
	if source, ok := t.opts.Zones[instanceType+"/"+zone]; ok {
		return source, true
	}
	source, ok := t.opts.Zones[zone]
	return source, ok
}

// History implements Market.
func (t *Trace) History(instanceType, zone string, from, to time.Time) []PricePoint {
	return hourly(t, instanceType, zone, from, to)
}

// NextChange implements Market.
func (t *Trace) NextChange(after time.Time) (time.Time, bool) {
	elapsed, ok := t.times.after(t.opts.Timeline.Elapsed(after))
	below, belowOK := t.base.NextChange(after)
	return earlier(t.opts.Timeline.Moment(elapsed), ok, below, belowOK)
}

func (t *Trace) hour() time.Duration { return t.opts.Timeline.Hour() }

// valueAt returns the value at a time, or the first one before anything was recorded.
func valueAt[T any](s steps[T], at time.Duration) T {
	if last, ok := s.at(at); ok {
		return last.value
	}
	return s[0].value
}

func timesOf[T any](s steps[T]) steps[struct{}] {
	times := make(steps[struct{}], len(s))
	for i := range s {
		times[i].at = s[i].at
	}
	return times
}

// roundToMill rounds to the thousandth, as Alibaba quotes spot prices.
func roundToMill(price float64) float64 { return math.Round(price*1000) / 1000 }
