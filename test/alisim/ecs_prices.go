package alisim

import (
	"math"
	"time"

	"gpu-spot-autoscaler/test/alisim/market"
)

const currency = "CNY"

// historyPage is how many prices one page of DescribeSpotPriceHistory has.
const historyPage = 1000

// historySpan is how far back prices are kept.
const historySpan = market.HistoryHours * time.Hour

type spotPriceJSON struct {
	ZoneId, InstanceType, IoOptimized, NetworkType, Timestamp string

	SpotPrice, OriginPrice float64
}

func describeSpotPriceHistory(c *cloud, r *request) (reply, error) {
	id, err := r.required("InstanceType")
	if err != nil {
		return nil, err
	}
	if _, err := r.required("NetworkType"); err != nil {
		return nil, err
	}
	if _, known := c.types[id]; !known {
		return nil, notFound("InvalidInstanceType.NotFound", "The specified instance type %q does not exist.", id)
	}
	from, to, err := r.span()
	if err != nil {
		return nil, err
	}
	offset, err := r.integer("Offset", 0, 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	var list []spotPriceJSON
	for _, zone := range c.zones(r.get("ZoneId")) {
		for _, p := range c.market.History(id, zone, from, to) {
			list = append(list, spotPriceJSON{
				ZoneId: zone, InstanceType: id, IoOptimized: "optimized", NetworkType: "vpc",
				Timestamp: p.At.UTC().Format(secondLayout), SpotPrice: p.Spot, OriginPrice: p.OnDemand,
			})
		}
	}
	rest := list[min(offset, len(list)):]
	next := 0
	if len(rest) > historyPage {
		rest, next = rest[:historyPage], offset+historyPage
	}
	return reply{"Currency": currency, "NextOffset": next, "SpotPrices": wrap("SpotPriceType", rest)}, nil
}

// span is StartTime and EndTime, by default the last three hours.
func (r *request) span() (from, to time.Time, err error) {
	from, to = r.now.Add(-3*time.Hour), r.now
	for name, field := range map[string]*time.Time{"StartTime": &from, "EndTime": &to} {
		text := r.get(name)
		if text == "" {
			continue
		}
		if *field, err = time.Parse(secondLayout, text); err != nil {
			return from, to, badRequest("Invalid"+name+".Malformed", "The specified %s %q is not of the form yyyy-MM-ddTHH:mm:ssZ.", name, text)
		}
	}
	if r.now.Sub(from) > historySpan+time.Minute {
		return from, to, badRequest("InvalidStartTime.ExceedDays", "StartTime is more than 30 days ago.")
	}
	if to.After(r.now) {
		to = r.now
	}
	return from, to, nil
}

type spotZoneJSON struct {
	ZoneId                 string
	AvailableSpotResources map[string][]spotAdviceJSON
}

type spotAdviceJSON struct {
	InstanceType        string
	InterruptionRate    float64
	InterruptRateDesc   string
	AverageSpotDiscount int
}

func describeSpotAdvice(c *cloud, r *request) (reply, error) {
	ids, err := r.list("InstanceTypes", maxTypeIDs)
	if err != nil {
		return nil, err
	}
	var zones []spotZoneJSON
	for _, zone := range c.zones(r.get("ZoneId")) {
		var list []spotAdviceJSON
		for _, id := range ids {
			a := market.Advise(c.market, id, zone, r.now)
			if a != (market.Advice{}) {
				list = append(list, spotAdviceJSON{id, a.InterruptionRate, a.Bucket, int(math.Round(a.Discount * 100))})
			}
		}
		if len(list) > 0 {
			zones = append(zones, spotZoneJSON{zone, wrap("AvailableSpotResource", list)})
		}
	}
	return reply{"RegionId": c.world.Region, "AvailableSpotZones": wrap("AvailableSpotZone", zones)}, nil
}

// describePrice tells the price of an instance-hour: what is paid (TradePrice) and the price without discount.
func describePrice(c *cloud, r *request) (reply, error) {
	id, err := r.required("InstanceType")
	if err != nil {
		return nil, err
	}
	if kind := orElse(r.get("ResourceType"), "instance"); kind != "instance" {
		return nil, invalid("ResourceType", kind)
	}
	if unit := orElse(r.get("PriceUnit"), "Hour"); unit != "Hour" {
		return nil, invalid("PriceUnit", unit)
	}
	amount, err := r.integer("Amount", 1, 1, maxAdjustment)
	if err != nil {
		return nil, err
	}
	q, found := c.quote(id, r)
	if !found {
		return nil, notFound("InvalidInstanceType.ValueNotSupported", "Instance type %q is not sold in the specified zone.", id)
	}
	price := q.OnDemand
	if strategy := orElse(r.get("SpotStrategy"), NoSpot); strategy != NoSpot {
		if q.Spot == 0 {
			return nil, badRequest("InvalidSpotStrategy.NotSupported", "Instance type %q is not sold as spot in the specified zone.", id)
		}
		price = q.Spot
	}
	n := float64(amount)
	return reply{"PriceInfo": map[string]any{
		"Price": map[string]any{
			"Currency": currency, "OriginalPrice": q.OnDemand * n, "TradePrice": price * n, "DiscountPrice": (q.OnDemand - price) * n,
			"DetailInfos": wrap("DetailInfo", []map[string]any{
				{"Resource": "instanceType", "OriginalPrice": q.OnDemand * n, "TradePrice": price * n, "DiscountPrice": (q.OnDemand - price) * n},
			}),
		},
		"Rules": wrap[any]("Rule", nil),
	}}, nil
}

// quote is that of the zone asked for, else of the first zone that sells the type.
func (c *cloud) quote(id string, r *request) (market.Quote, bool) {
	for _, zone := range c.zones(r.get("ZoneId")) {
		if q := c.market.Quote(id, zone, r.now); q.OnDemand > 0 {
			return q, true
		}
	}
	return market.Quote{}, false
}
