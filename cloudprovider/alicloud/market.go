package alicloud

import (
	"context"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
)

// historyReach is how far back ECS tells spot prices.
const historyReach = 30 * 24 * time.Hour

// SpotPriceHistory returns the spot prices of an instance type since a time at most 30 days ago, the oldest first, in
// one zone or, where zoneID is "", in all.
func (c *Client) SpotPriceHistory(ctx context.Context, instanceType, zoneID string, since time.Time) ([]SpotPrice, error) {
	if earliest := c.options.Clock.Now().Add(-historyReach); since.Before(earliest) {
		since = earliest.Add(time.Minute) // for the time the request takes
	}
	var prices []SpotPrice
	for offset, pages := 0, 0; pages < maxTokenPages; pages++ {
		r, err := send(ctx, c, request[*ecsapi.DescribeSpotPriceHistoryResponse]{
			service: ecs, action: "DescribeSpotPriceHistory", response: ecsapi.CreateDescribeSpotPriceHistoryResponse,
			build: func() requests.AcsRequest {
				q := ecsapi.CreateDescribeSpotPriceHistoryRequest()
				q.InstanceType, q.ZoneId, q.NetworkType = instanceType, zoneID, "vpc"
				q.StartTime = since.UTC().Format(time.RFC3339)
				if offset > 0 {
					q.Offset = requests.NewInteger(offset)
				}
				return q
			}})
		if err != nil {
			return nil, err
		}
		c.noteCurrency(r.Currency)
		prices = append(prices, convert(r.SpotPrices.SpotPriceType, spotPrice)...)
		if r.NextOffset <= offset || len(r.SpotPrices.SpotPriceType) == 0 {
			break
		}
		offset = r.NextOffset
	}
	slices.SortStableFunc(prices, func(a, b SpotPrice) int { return a.Time.Compare(b.Time) })
	return prices, nil
}

// Currency is that of all prices, such as "CNY" or "USD": an account has one. It is empty until a price was read.
// Source: Currency in the replies of DescribeSpotPriceHistory and DescribePrice, ECS 2014-05-26.
func (c *Client) Currency() string {
	if known := c.currency.Load(); known != nil {
		return *known
	}
	return ""
}

func (c *Client) noteCurrency(currency string) {
	if currency != "" {
		c.currency.Store(&currency)
	}
}

func spotPrice(p *ecsapi.SpotPriceType) SpotPrice {
	return SpotPrice{ZoneID: p.ZoneId, Spot: p.SpotPrice, OnDemand: p.OriginPrice, Time: parseTime(p.Timestamp)}
}

// OnDemandPrice returns the pay-as-you-go price of an instance type per hour, without disks, after the account's
// discounts.
func (c *Client) OnDemandPrice(ctx context.Context, instanceType, zoneID string) (float64, error) {
	// Recent GPU types know only ESSD system disks, old ones none, and the service prices nothing without a disk it
	// accepts. Its own default suits the old.
	price, err := c.price(ctx, instanceType, zoneID, "cloud_essd")
	if ClassOf(err) == Invalid {
		price, err = c.price(ctx, instanceType, zoneID, "")
	}
	return price, err
}

func (c *Client) price(ctx context.Context, instanceType, zoneID, diskCategory string) (float64, error) {
	const action = "DescribePrice"
	r, err := send(ctx, c, request[*ecsapi.DescribePriceResponse]{
		service: ecs, action: action, response: ecsapi.CreateDescribePriceResponse,
		build: func() requests.AcsRequest {
			q := ecsapi.CreateDescribePriceRequest()
			q.ResourceType, q.InstanceType, q.ZoneId, q.PriceUnit = "instance", instanceType, zoneID, "Hour"
			q.SystemDiskCategory = diskCategory
			return q
		}})
	if err != nil {
		return 0, err
	}
	whole := r.PriceInfo.Price
	c.noteCurrency(whole.Currency)
	for _, d := range whole.DetailInfos.DetailInfo {
		if d.Resource == "instanceType" && d.TradePrice > 0 {
			return d.TradePrice, nil
		}
	}
	for _, price := range []float64{whole.TradePrice, whole.OriginalPrice} {
		if price > 0 {
			return price, nil
		}
	}
	return 0, &Error{Service: ecs, Action: action, Code: CodeNoPrice, Class: NotFound, Status: r.GetHttpStatus(),
		RequestID: r.RequestId, Message: "the reply has no price of " + instanceType}
}

// SpotAdvice returns Alibaba's hints on instance types, by zone.
func (c *Client) SpotAdvice(ctx context.Context, types []string) ([]SpotAdvice, error) {
	return inBatches(ctx, types, instanceTypesBatch, func(ctx context.Context, types []string) ([]SpotAdvice, error) {
		r, err := send(ctx, c, request[*ecsapi.DescribeSpotAdviceResponse]{
			service: ecs, action: "DescribeSpotAdvice", response: ecsapi.CreateDescribeSpotAdviceResponse,
			build: func() requests.AcsRequest {
				q := ecsapi.CreateDescribeSpotAdviceRequest()
				q.InstanceTypes, q.NetworkType = listOf(types), "vpc"
				return q
			}})
		if err != nil {
			return nil, err
		}
		var advice []SpotAdvice
		for _, zone := range r.AvailableSpotZones.AvailableSpotZone {
			for _, a := range zone.AvailableSpotResources.AvailableSpotResource {
				advice = append(advice, SpotAdvice{ZoneID: zone.ZoneId, InstanceType: a.InstanceType,
					InterruptionRate: a.InterruptRateDesc, Discount: float64(a.AverageSpotDiscount) / 100})
			}
		}
		return advice, nil
	})
}

// Stock returns whether an instance type can be had, in one zone or, where zoneID is "", in all. The strategy is that
// of the purchase; "" stands for NoSpot.
func (c *Client) Stock(ctx context.Context, instanceType, zoneID, spotStrategy string) ([]Stock, error) {
	r, err := send(ctx, c, request[*ecsapi.DescribeAvailableResourceResponse]{
		service: ecs, action: "DescribeAvailableResource", response: ecsapi.CreateDescribeAvailableResourceResponse,
		build: func() requests.AcsRequest {
			q := ecsapi.CreateDescribeAvailableResourceRequest()
			q.DestinationResource, q.IoOptimized, q.InstanceChargeType = "InstanceType", "optimized", "PostPaid"
			q.InstanceType, q.ZoneId, q.SpotStrategy = instanceType, zoneID, spotStrategy
			return q
		}})
	if err != nil {
		return nil, err
	}
	var stock []Stock
	for _, zone := range r.AvailableZones.AvailableZone {
		for _, resource := range zone.AvailableResources.AvailableResource {
			for _, s := range resource.SupportedResources.SupportedResource {
				if s.Value == instanceType {
					stock = append(stock, Stock{ZoneID: zone.ZoneId, InstanceType: s.Value, Category: s.StatusCategory})
				}
			}
		}
	}
	return stock, nil
}
