package market

import (
	"slices"
	"time"
)

// HistoryHours is how far back Alibaba keeps spot prices and release rates: 30 days.
const HistoryHours = 30 * 24

// hourOf returns how long an hour of market time takes on the caller's clock.
func hourOf(m Market) time.Duration {
	if m, ok := m.(interface{ hour() time.Duration }); ok {
		return m.hour()
	}
	return time.Hour
}

// hourly samples a market's prices at every full market hour within from and to, and at to if the price moved since.
func hourly(m Market, instanceType, zone string, from, to time.Time) []PricePoint {
	hour := hourOf(m)
	if oldest := to.Add(-HistoryHours * hour); from.Before(oldest) {
		from = oldest
	}
	var points []PricePoint
	add := func(at time.Time) {
		q := m.Quote(instanceType, zone, at)
		if q.Spot > 0 {
			points = append(points, PricePoint{At: at, Spot: q.Spot, OnDemand: q.OnDemand})
		}
	}
	last := to.Truncate(hour)
	for at := last; !at.Before(from); at = at.Add(-hour) {
		add(at)
	}
	slices.Reverse(points)
	if now := m.Quote(instanceType, zone, to).Spot; !to.Before(from) && (len(points) == 0 || points[len(points)-1].Spot != now) {
		add(to)
	}
	return points
}

// Advice is Alibaba's hint on one type in one zone, as DescribeSpotAdvice gives it.
type Advice struct {
	// InterruptionRate is the percentage of instance-hours of the last 30 market days that ended in a reclaim.
	InterruptionRate float64
	// Bucket is the rate as Alibaba prints it: "0-3", "3-5", "5-10" or "10-100".
	Bucket string
	// Discount is the average spot price as a fraction of the on-demand price.
	Discount float64
}

// Advise derives the hint from the market's own last 30 days. It returns the zero Advice where the type was not sold
// as spot. Alibaba does not say how it counts; this counts the full hours at whose start an instance could run and at
// whose end it could not.
func Advise(m Market, instanceType, zone string, at time.Time) Advice {
	hour := hourOf(m)
	var up, lost, sold int
	var ratios float64
	before := Quote{}
	for i := HistoryHours; i >= 0; i-- {
		q := m.Quote(instanceType, zone, at.Add(-time.Duration(i)*hour))
		if before.Available {
			up++
			if !q.Available {
				lost++
			}
		}
		if q.Spot > 0 && q.OnDemand > 0 {
			sold++
			ratios += q.Spot / q.OnDemand
		}
		before = q
	}
	if sold == 0 {
		return Advice{}
	}
	advice := Advice{Discount: ratios / float64(sold)}
	if up > 0 {
		advice.InterruptionRate = 100 * float64(lost) / float64(up)
	}
	advice.Bucket = releaseBucket(advice.InterruptionRate)
	return advice
}

func releaseBucket(percent float64) string {
	switch {
	case percent < 3:
		return "0-3"
	case percent < 5:
		return "3-5"
	case percent < 10:
		return "5-10"
	default:
		return "10-100"
	}
}

// scarce is how few instances left make Alibaba's category "ClosedWithStock". The real figure is not published.
const scarce = 3

// StockCategory puts the number of instances still to be had, Unlimited for no bound, in the words of
// DescribeAvailableResource: WithStock, ClosedWithStock (little left) or WithoutStock.
func StockCategory(left int) string {
	switch {
	case left == 0:
		return "WithoutStock"
	case left > 0 && left <= scarce:
		return "ClosedWithStock"
	default:
		return "WithStock"
	}
}
