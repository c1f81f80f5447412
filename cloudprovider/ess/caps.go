package ess

import (
	"fmt"
	"strings"
)

// affordable says whether the market price is within the caps. Where a cap stands and no fresh price is known, it is not.
func (p *Provider) affordable(pool *pool, known *knownOffering) bool {
	if pool.targeting != targetWhole {
		return known.priceCap == 0 || p.within(known)
	}
	for _, offered := range pool.offerings { // any of them may come
		if offered.priceCap > 0 && !p.within(offered) {
			return false
		}
	}
	return true
}

func (p *Provider) within(known *knownOffering) bool {
	price, fresh := p.Prices.FreshPrice(known.priced())
	return fresh && price <= known.priceCap
}

// namedAtMost is how many offerings a message names before it counts the rest.
const namedAtMost = 5

// stalePrices says of which offerings the last known price is too old to hold a cap against; "" where of none. Those
// without any price are not among them: they have just come, or the looks at their prices fail, which has an alert.
func (p *Provider) stalePrices(pool *pool) string {
	var stale []string
	for _, offered := range pool.offerings {
		if offered.priceCap == 0 {
			continue
		}
		_, known := p.Prices.Price(offered.priced())
		if _, fresh := p.Prices.FreshPrice(offered.priced()); known && !fresh {
			stale = append(stale, offered.InstanceType+" in "+offered.Zone)
		}
	}
	if len(stale) == 0 {
		return ""
	}
	more := ""
	if len(stale) > namedAtMost {
		more = fmt.Sprintf(" and %d more", len(stale)-namedAtMost)
		stale = stale[:namedAtMost]
	}
	return fmt.Sprintf("nothing can be bought under its price cap: the last prices of %s%s are older than --price-max-age",
		strings.Join(stale, ", "), more)
}
