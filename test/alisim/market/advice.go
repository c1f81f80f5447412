package market

import "time"

// HistoryHours is how far back Alibaba keeps spot prices and release rates: 30 days.
const HistoryHours = 30 * 24

// Advice is Alibaba's hint on one type in one zone, as DescribeSpotAdvice gives it.
type Advice struct {
	// InterruptionRate is the percentage of instance-hours of the last 30 market days that ended in a reclaim.
	InterruptionRate float64
	// Bucket is the rate as Alibaba prints it: "0-3", "3-5", "5-10" or "10-100".
	Bucket string
	// Discount is the average spot price as a fraction of the on-demand price, 0 to 1.
	Discount float64
}

// Advise derives the hint from the market's own last 30 days. hour is how long a market hour takes on the caller's
// clock (Timeline.Hour). The zero Advice where the type is not sold as spot.
func Advise(m Market, instanceType, zone string, at time.Time, hour time.Duration) Advice {
	panic("not yet")
}

// StockCategory is a quote's stock in the words of DescribeAvailableResource: WithStock, or WithoutStock.
func StockCategory(q Quote) string { panic("not yet") }
