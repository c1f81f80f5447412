package pool

import (
	"fmt"
	"strings"

	"gpu-spot-autoscaler/pricing"
)

// Prices are the market prices of offerings, per instance-hour.
type Prices interface {
	// FreshPrice returns the price if it is recent enough to be compared with a cap.
	FreshPrice(pricing.Offering) (float64, bool)
	pricing.Prices
}

// Affordable says whether the price of the offering is within its cap. Without a fresh price an offering with a cap is not
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

// PriceObstacle says to a user why an offering is not affordable.
func (p *Pool) PriceObstacle(o *Offering, prices Prices) string {
	offerings := []*Offering{o}
	if p.Targeting == TargetWhole {
		offerings = p.Offerings
	}
	for _, offered := range offerings {
		if offered.withinCap(prices) {
			continue
		}
		if _, fresh := prices.FreshPrice(offered.Offering); !fresh {
			return fmt.Sprintf("no recent price to compare with the cap of %g", offered.PriceCap)
		}
		return fmt.Sprintf("price above the cap of %g", offered.PriceCap)
	}
	return ""
}

func (o *Offering) withinCap(prices Prices) bool {
	if o.PriceCap == 0 {
		return true
	}
	price, fresh := prices.FreshPrice(o.Offering)
	return fresh && price <= o.PriceCap
}

// Price returns the price of the offering per instance-hour; for a whole pool, that of its dearest offering. Each price is
// multiplied by the interruption penalty; nil is no penalty. It is false if a price is unknown.
func (p *Pool) Price(o pricing.Offering, prices pricing.Prices, penalty func(pricing.Offering) float64) (float64, bool) {
	if p.Targeting != TargetWhole {
		return penalized(o, prices, penalty)
	}
	dearest := 0.0
	for _, offered := range p.Offerings {
		price, known := penalized(offered.Offering, prices, penalty)
		if !known {
			return 0, false
		}
		dearest = max(dearest, price)
	}
	return dearest, true
}

func penalized(o pricing.Offering, prices pricing.Prices, penalty func(pricing.Offering) float64) (float64, bool) {
	price, known := prices.Price(o)
	if penalty != nil {
		price *= penalty(o)
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
