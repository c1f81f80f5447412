package alicloud

import "time"

// SpotPrice is one point of the price history of an instance type in a zone.
// Source: ECS 2014-05-26, DescribeSpotPriceHistory.
type SpotPrice struct {
	ZoneID string
	// Spot and OnDemand are per instance-hour in the account's currency.
	Spot, OnDemand float64
	Time           time.Time
}
