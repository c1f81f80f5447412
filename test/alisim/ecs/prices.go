package ecs

import (
	"cmp"
	"math"
	"time"

	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

const currency = "CNY"

// historyPage is how many prices one page of DescribeSpotPriceHistory has.
const historyPage = 1000

// maxAmount is how many instances a price is asked for.
const maxAmount = 1000

// historySpan is how far back prices are kept.
const historySpan = market.HistoryHours * time.Hour

type spotPriceJSON struct {
	ZoneId, InstanceType, IoOptimized, NetworkType, Timestamp string

	SpotPrice, OriginPrice float64
}

// priceActions answers the requests about prices.
type priceActions struct{ *Compute }

func (c priceActions) describeSpotPriceHistory(r *protocol.Request) (protocol.Reply, error) {
	id, err := r.Required("InstanceType")
	if err != nil {
		return nil, err
	}
	if _, err := r.Required("NetworkType"); err != nil {
		return nil, err
	}
	if _, known := c.types[id]; !known {
		return nil, protocol.NotFound("InvalidInstanceType.NotFound", "The specified instance type %q does not exist.", id)
	}
	from, to, err := span(r)
	if err != nil {
		return nil, err
	}
	offset, err := r.Integer("Offset", 0, 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	duration, err := r.Integer("SpotDuration", 1, 0, 6)
	if err != nil {
		return nil, err
	}
	var list []spotPriceJSON
	for _, zone := range zonesNamed(r.Get("ZoneId"), c.Zones) {
		for _, p := range c.Market.History(id, zone, from, to) {
			list = append(list, spotPriceJSON{
				ZoneId: zone, InstanceType: id, IoOptimized: "optimized", NetworkType: "vpc",
				Timestamp: p.At.UTC().Format(protocol.SecondLayout), SpotPrice: spotPrice(p.Spot, duration), OriginPrice: p.OnDemand,
			})
		}
	}
	rest := list[min(offset, len(list)):]
	next := 0
	if len(rest) > historyPage {
		rest, next = rest[:historyPage], offset+historyPage
	}
	return protocol.Reply{"Currency": currency, "NextOffset": next, "SpotPrices": protocol.Wrap("SpotPriceType", rest)}, nil
}

// span is StartTime and EndTime, by default the last three hours.
func span(r *protocol.Request) (from, to time.Time, err error) {
	from, to = r.Now.Add(-3*time.Hour), r.Now
	for name, field := range map[string]*time.Time{"StartTime": &from, "EndTime": &to} {
		text := r.Get(name)
		if text == "" {
			continue
		}
		if *field, err = time.Parse(protocol.SecondLayout, text); err != nil {
			return from, to, protocol.BadRequest("Invalid"+name+".Malformed", "The specified %s %q is not of the form yyyy-MM-ddTHH:mm:ssZ.", name, text)
		}
	}
	if r.Now.Sub(from) > historySpan+time.Minute {
		return from, to, protocol.BadRequest("InvalidStartTime.ExceedDays", "StartTime is more than 30 days ago.")
	}
	if to.After(r.Now) {
		to = r.Now
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

func (c priceActions) describeSpotAdvice(r *protocol.Request) (protocol.Reply, error) {
	ids, err := r.List("InstanceTypes", maxTypeIDs)
	if err != nil {
		return nil, err
	}
	var zones []spotZoneJSON
	for _, zone := range zonesNamed(r.Get("ZoneId"), c.Zones) {
		var list []spotAdviceJSON
		for _, id := range ids {
			a := market.Advise(c.Market, id, zone, r.Now)
			if a != (market.Advice{}) {
				list = append(list, spotAdviceJSON{id, a.InterruptionRate, a.Bucket, int(math.Round(a.Discount * 100))})
			}
		}
		if len(list) > 0 {
			zones = append(zones, spotZoneJSON{zone, protocol.Wrap("AvailableSpotResource", list)})
		}
	}
	return protocol.Reply{"RegionId": c.cloud.Region, "AvailableSpotZones": protocol.Wrap("AvailableSpotZone", zones)}, nil
}

// describePrice tells the price of an instance-hour: what is paid (TradePrice) and the price without discount.
func (c priceActions) describePrice(r *protocol.Request) (protocol.Reply, error) {
	id, err := r.Required("InstanceType")
	if err != nil {
		return nil, err
	}
	if kind := cmp.Or(r.Get("ResourceType"), "instance"); kind != "instance" {
		return nil, protocol.Invalid("ResourceType", kind)
	}
	if unit := cmp.Or(r.Get("PriceUnit"), "Hour"); unit != "Hour" {
		return nil, protocol.Invalid("PriceUnit", unit)
	}
	amount, err := r.Integer("Amount", 1, 1, maxAmount)
	if err != nil {
		return nil, err
	}
	q, found := c.quote(id, r)
	if !found {
		return nil, protocol.NotFound("InvalidInstanceType.ValueNotSupported", "Instance type %q is not sold in the specified zone.", id)
	}
	price := q.OnDemand
	if strategy := cmp.Or(r.Get("SpotStrategy"), NoSpot); strategy != NoSpot {
		if q.Spot == 0 {
			return nil, protocol.BadRequest("InvalidSpotStrategy.NotSupported", "Instance type %q is not sold as spot in the specified zone.", id)
		}
		price = q.Spot
	}
	n := float64(amount)
	return protocol.Reply{"PriceInfo": map[string]any{
		"Price": map[string]any{
			"Currency": currency, "OriginalPrice": q.OnDemand * n, "TradePrice": price * n, "DiscountPrice": (q.OnDemand - price) * n,
			"DetailInfos": protocol.Wrap("DetailInfo", []map[string]any{
				{"Resource": "instanceType", "OriginalPrice": q.OnDemand * n, "TradePrice": price * n, "DiscountPrice": (q.OnDemand - price) * n},
			}),
		},
		"Rules": protocol.Wrap[any]("Rule", nil),
	}}, nil
}

// quote is that of the zone asked for, else of the first zone that sells the type.
func (c priceActions) quote(id string, r *protocol.Request) (market.Quote, bool) {
	for _, zone := range zonesNamed(r.Get("ZoneId"), c.Zones) {
		if q := c.Market.Quote(id, zone, r.Now); q.OnDemand > 0 {
			return q, true
		}
	}
	return market.Quote{}, false
}
