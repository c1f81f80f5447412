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

// SpotAdvice is Alibaba Cloud's own assessment of an instance type in a zone.
// Source: ECS 2014-05-26, DescribeSpotAdvice.
type SpotAdvice struct {
	ZoneID       string
	InstanceType string
	// InterruptionRate is Alibaba Cloud's bucket, such as "0-3" per cent.
	InterruptionRate string
	// Discount is the average spot price as a fraction of the on-demand price, 0 to 1.
	Discount float64
}

// Stock is whether an instance type is available in a zone.
// Source: ECS 2014-05-26, DescribeAvailableResource.
type Stock struct {
	ZoneID       string
	InstanceType string
	// Category is WithStock, ClosedWithStock or WithoutStock.
	Category string
}
