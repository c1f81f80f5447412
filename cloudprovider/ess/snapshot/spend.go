package snapshot

import (
	"fmt"
	"math"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// Spend returns what the instances of the pool cost in an hour, those that are bought and not delivered among them, and those that are
// planned, by node group. Instances that leave are not counted, so that their replacements can be bought first. It is false if the price
// of one is unknown.
func (s *Snapshot) Spend(known *pool.Pool, planned map[string]int, prices pool.Prices) (perHour float64, priced bool) {
	for id, offered := range known.NodeGroups {
		size := s.GroupSize(id)
		instances := size.Live + size.Purchased + planned[id]
		if instances == 0 {
			continue
		}
		price, found := known.Price(offered.Offering, prices, nil)
		if !found {
			return 0, false
		}
		perHour += float64(instances) * price
	}
	return perHour, true
}

// withinSpendCap returns how many instances of the offering the spend cap of the pool allows beside those that are planned. It is not capped
// if the pool has none. None are allowed while a price is unknown.
func (s *Snapshot) withinSpendCap(known *pool.Pool, offered *pool.Offering, planned map[string]int, prices pool.Prices) (instances int, capped bool) {
	limit := known.Settings.SpendCap
	if limit == 0 {
		return 0, false
	}
	spent, priced := s.Spend(known, planned, prices)
	price, found := known.Price(offered.Offering, prices, nil)
	if !priced || !found || price <= 0 {
		return 0, true
	}
	// A sum of prices may miss by its rounding.
	return int(math.Floor((limit-spent)/price + 1e-9)), true
}

// SpendCapReached returns whether the spend cap of the pool is what keeps each of its offerings from being bought that could be otherwise.
func (s *Snapshot) SpendCapReached(known *pool.Pool, prices pool.Prices) bool {
	reached := false
	for id := range known.NodeGroups {
		switch room, blockedBy := s.room(id, nil, prices); {
		case room > 0:
			return false
		case blockedBy == status.BlockedSpend:
			reached = true
		}
	}
	return reached
}

// spendObstacle returns why the spend cap of the pool, which costs that much in an hour if all its instances are priced, allows no instance of
// the offering.
func spendObstacle(known *pool.Pool, offered *pool.Offering, spent float64, priced bool, prices pool.Prices) *reasons.Reason {
	limit := known.Settings.SpendCap
	price, found := known.Price(offered.Offering, prices, nil)
	if !priced || !found {
		return reasons.New(reasons.NoPrice, fmt.Sprintf("Wait until the prices of all instances of pool %s are known, or remove its spend cap.", known.ID),
			"a price is unknown, so that the spend of pool %s cannot be compared with its cap of %g per hour", known.ID, limit)
	}
	reason := reasons.New(reasons.SpendCap,
		fmt.Sprintf("Raise the tag %s of pool %s to at least %g%s per hour, or wait until instances are given back.", api.TagSpendCap, known.ID,
			math.Ceil((spent+price)*100)/100, pool.Currency(prices)),
		"spend cap %g < %.2f of pool %s and %.2f%s per hour for one more", limit, spent, known.ID, price, pool.Currency(prices))
	reason.Excess = spent + price - limit
	return reason
}
