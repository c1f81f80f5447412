package pool

import (
	"fmt"
	"math"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/pricing"
)

// Prices are the market prices of offerings, per instance-hour.
type Prices interface {
	// FreshPrice returns the price if it is recent enough to be compared with a cap.
	FreshPrice(pricing.Offering) (float64, bool)
	pricing.Prices
}

// Affordable returns whether the price of the offering is within its cap. Without a fresh price an offering with a cap is not
// affordable. The node group of a whole pool is affordable if all offerings are, because any of them may be delivered.
func (p *Pool) Affordable(o *Offering, prices Prices) bool {
	if p.Targeting != TargetWhole {
		return o.withinCap(prices)
	}
	for _, offered := range p.Offerings {
		if !offered.withinCap(prices) {
			return false
		}
	}
	return true
}

// PriceObstacle returns why an offering is not affordable, nil where it is.
func (p *Pool) PriceObstacle(o *Offering, prices Prices) *reasons.Reason {
	offerings := []*Offering{o}
	if p.Targeting == TargetWhole {
		offerings = p.Offerings
	}
	for _, offered := range offerings {
		if !offered.withinCap(prices) {
			return p.capObstacle(offered, prices)
		}
	}
	return nil
}

func (p *Pool) capObstacle(o *Offering, prices Prices) *reasons.Reason {
	price, fresh := prices.FreshPrice(o.Offering)
	if !fresh {
		return reasons.New(reasons.NoPrice,
			fmt.Sprintf("Wait for a price of %s in %s, or remove the price cap of pool %s.", o.InstanceType, o.Zone, p.ID),
			"no recent price to compare with the price cap of %g", o.PriceCap)
	}
	currency := Currency(prices)
	reason := reasons.New(reasons.PriceCap,
		fmt.Sprintf("Raise %s, or wait until the price falls.", strings.Join(p.capsBelow(o, price, currency), " and ")),
		"price cap %g < price %g%s per hour", o.PriceCap, price, currency)
	reason.Excess = price - o.PriceCap
	return reason
}

// Currency returns the currency of the prices after a space, empty while it is not known.
func Currency(prices Prices) string {
	if known, ok := prices.(interface{ Currency() string }); ok && known.Currency() != "" {
		return " " + known.Currency()
	}
	return ""
}

// capsBelow names each cap that is below the price, with the value at which it would not be.
func (p *Pool) capsBelow(o *Offering, price float64, currency string) (caps []string) {
	of := fmt.Sprintf(" of pool %s to at least ", p.ID)
	if limit := p.Settings.PriceCap; limit > 0 && limit < price {
		caps = append(caps, fmt.Sprintf("the tag %s%s%g%s per hour", api.TagPriceCap, of, price, currency))
	}
	if limit := p.Settings.PriceCapByType[o.InstanceType]; limit > 0 && limit < price {
		caps = append(caps, fmt.Sprintf("the tag %s%s%s%g%s per hour", api.TagPriceCapOf, o.InstanceType, of, price, currency))
	}
	if gpus := float64(o.Type.GPUs); gpus > 0 && p.Settings.PriceCapPerGPU > 0 && p.Settings.PriceCapPerGPU*gpus < price {
		caps = append(caps, fmt.Sprintf("the tag %s%s%g%s per GPU and hour", api.TagPriceCapPerGPU, of, math.Ceil(price/gpus*10000)/10000, currency))
	}
	if len(caps) == 0 {
		caps = append(caps, fmt.Sprintf("the price limit of %s in the scaling configuration%s%g%s per hour", o.InstanceType, of, price, currency))
	}
	return caps
}

func (o *Offering) withinCap(prices Prices) bool {
	if o.PriceCap == 0 {
		return true
	}
	price, fresh := prices.FreshPrice(o.Offering)
	return fresh && price <= o.PriceCap
}

// Price returns the price of the offering per instance-hour; for a whole pool, that of its dearest offering. Each price is
// multiplied by the dearness of its offering; nil is 1. It is false if a price is unknown.
func (p *Pool) Price(o pricing.Offering, prices pricing.Prices, dearness func(pricing.Offering) float64) (float64, bool) {
	if p.Targeting != TargetWhole {
		return dearPrice(o, prices, dearness)
	}
	dearest := 0.0
	for _, offered := range p.Offerings {
		price, known := dearPrice(offered.Offering, prices, dearness)
		if !known {
			return 0, false
		}
		dearest = max(dearest, price)
	}
	return dearest, true
}

func dearPrice(o pricing.Offering, prices pricing.Prices, dearness func(pricing.Offering) float64) (float64, bool) {
	price, known := prices.Price(o)
	if dearness != nil {
		price *= dearness(o)
	}
	return price, known
}

// maxNamed is how many offerings a message names.
const maxNamed = 5

// StalePrices says which offerings cannot be bought because their last price is too old to be compared with their cap; empty
// where there is none. Offerings without any price are left out: either they are new, or reading prices fails, which has an
// alert of its own.
func (p *Pool) StalePrices(prices Prices) string {
	var stale []string
	for _, offered := range p.Offerings {
		if offered.PriceCap == 0 {
			continue
		}
		_, known := prices.Price(offered.Offering)
		if _, fresh := prices.FreshPrice(offered.Offering); known && !fresh {
			stale = append(stale, offered.InstanceType+" in "+offered.Zone)
		}
	}
	if len(stale) == 0 {
		return ""
	}
	more := ""
	if len(stale) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(stale)-maxNamed)
		stale = stale[:maxNamed]
	}
	return fmt.Sprintf("nothing can be bought under its price cap: the last prices of %s%s are older than --price-max-age",
		strings.Join(stale, ", "), more)
}
