package client

import (
	"context"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

const (
	// historyReach is how far back ECS has spot prices.
	historyReach = 30 * 24 * time.Hour
	// maxPricePages ends a history whose pages never end.
	maxPricePages = 1000
)

// SpotPriceHistory returns the spot prices of an instance type with or without a protected hour since the given time, the oldest first, in one zone or, if
// zoneID is "", in all zones. ECS has the prices of the last 30 days.
func (c *ECS) SpotPriceHistory(ctx context.Context, instanceType, zoneID string, isProtected bool, since time.Time) ([]alicloud.SpotPrice, error) {
	if earliest := c.caller.Clock().Now().Add(-historyReach); since.Before(earliest) {
		since = earliest.Add(time.Minute) // for the time the request takes
	}
	var prices []alicloud.SpotPrice
	for offset, pages := 0, 0; pages < maxPricePages; pages++ {
		r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DescribeSpotPriceHistoryResponse]{
			Service: alicloud.ServiceECS, Action: "DescribeSpotPriceHistory", Response: ecsapi.CreateDescribeSpotPriceHistoryResponse,
			Build: func() requests.AcsRequest {
				q := ecsapi.CreateDescribeSpotPriceHistoryRequest()
				q.InstanceType, q.ZoneId, q.NetworkType = instanceType, zoneID, "vpc"
				if !isProtected {
					q.SpotDuration = requests.NewInteger(0) // the default is 1
				}
				q.StartTime = since.UTC().Format(time.RFC3339)
				if offset > 0 {
					q.Offset = requests.NewInteger(offset)
				}
				return q
			}})
		if err != nil {
			return nil, err
		}
		c.setCurrency(r.Currency)
		prices = append(prices, convert(r.SpotPrices.SpotPriceType, spotPrice)...)
		if r.NextOffset <= offset || len(r.SpotPrices.SpotPriceType) == 0 {
			break
		}
		offset = r.NextOffset
	}
	slices.SortStableFunc(prices, func(a, b alicloud.SpotPrice) int { return a.Time.Compare(b.Time) })
	return prices, nil
}

// Currency returns the currency of all prices, such as "CNY" or "USD"; an account has one. It is empty until a price was read.
// Source: Currency in the replies of DescribeSpotPriceHistory and DescribePrice, ECS 2014-05-26.
func (c *ECS) Currency() string {
	if known := c.currency.Load(); known != nil {
		return *known
	}
	return ""
}

func (c *ECS) setCurrency(currency string) {
	if currency != "" {
		c.currency.Store(&currency)
	}
}

func spotPrice(p *ecsapi.SpotPriceType) alicloud.SpotPrice {
	return alicloud.SpotPrice{ZoneID: p.ZoneId, Spot: p.SpotPrice, OnDemand: p.OriginPrice, Time: parseTime(p.Timestamp)}
}

// OnDemandPrice returns the pay-as-you-go price of an instance type per hour, in the account's currency, without disks and
// after the account's discounts.
func (c *ECS) OnDemandPrice(ctx context.Context, instanceType, zoneID string) (float64, error) {
	// ECS prices an instance only with a system disk that its type accepts. Recent GPU types accept only ESSD disks. Old ones
	// do not, and accept the default.
	price, err := c.price(ctx, instanceType, zoneID, "cloud_essd")
	if alicloud.ClassOf(err) == alicloud.Invalid {
		price, err = c.price(ctx, instanceType, zoneID, "")
	}
	return price, err
}

func (c *ECS) price(ctx context.Context, instanceType, zoneID, diskCategory string) (float64, error) {
	const action = "DescribePrice"
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DescribePriceResponse]{
		Service: alicloud.ServiceECS, Action: action, Response: ecsapi.CreateDescribePriceResponse,
		Build: func() requests.AcsRequest {
			q := ecsapi.CreateDescribePriceRequest()
			q.ResourceType, q.InstanceType, q.ZoneId, q.PriceUnit = "instance", instanceType, zoneID, "Hour"
			q.SystemDiskCategory = diskCategory
			return q
		}})
	if err != nil {
		return 0, err
	}
	whole := r.PriceInfo.Price
	c.setCurrency(whole.Currency)
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
	return 0, &alicloud.Error{Service: alicloud.ServiceECS, Action: action, Code: alicloud.CodeNoPrice, Class: alicloud.NotFound, Status: r.GetHttpStatus(),
		RequestID: r.RequestId, Message: "the reply has no price of " + instanceType}
}
