package snapshot

import (
	"fmt"
	"math"
	"time"

	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/pricing"
)

// Shortage is what a purchase that came short has shown of the stock of an offering.
type Shortage struct {
	// PoolID is the pool that asked for Asked instances and got Delivered.
	PoolID           string
	Asked, Delivered int
	// Left is how many more there may be.
	Left int
	// Held is how many instances of the offering all pools had when it was out of stock.
	Held int
	// Since is when the purchase was found to have come short, Until is how long that counts.
	Since, Until time.Time
}

// String says to a user why nothing is bought.
func (s Shortage) String() string {
	return fmt.Sprintf("out of stock: pool %s got %d of %d at %s, and it is not asked for again before %s",
		s.PoolID, s.Delivered, s.Asked, s.Since.UTC().Format(time.TimeOnly), s.Until.UTC().Format("15:04:05 MST"))
}

// status returns the shortage as it is served. ShortageOf is its inverse.
func (s Shortage) status() *status.Shortage {
	return &status.Shortage{
		Pool: s.PoolID, Asked: s.Asked, Delivered: s.Delivered, Left: s.Left, Held: s.Held, Since: s.Since.UTC(), Until: s.Until.UTC(),
	}
}

// ShortageOf returns a shortage that was served.
func ShortageOf(served status.Shortage) Shortage {
	return Shortage{
		PoolID: served.Pool, Asked: served.Asked, Delivered: served.Delivered, Left: served.Left, Held: served.Held, Since: served.Since, Until: served.Until,
	}
}

const (
	// leastStock is the least number of instances that an offering is taken to have in stock.
	leastStock = 16
	// crowding is the factor by which the price of an offering is raised for each stock that is asked for of it and not delivered yet.
	crowding = 1.5
	// maxCrowding bounds the exponent.
	maxCrowding = 10
)

// Crowding returns the factor by which the price of the offering counts for more, because as many of its instances as others had in stock
// are asked for already, or several times as many. It is 1 while there is no shortage.
//
// During a shortage the demand is for more than one offering has. If all of it asks the cheapest, that refuses most of it a delivery
// later, and then the next does. What is asked for beyond the stock is better asked for where it costs a little more.
func (s *Snapshot) Crowding(offering pricing.Offering) float64 {
	if len(s.Shortages) == 0 {
		return 1
	}
	s.counting.Do(s.count)
	stock := leastStock
	for _, shortage := range s.Shortages {
		stock = max(stock, shortage.Held)
	}
	return math.Pow(crowding, float64(min(maxCrowding, s.undelivered[offering]/stock)))
}

// stockLeft returns how many instances of the offering there may be left to buy, and false if no shortage is known. What was asked for
// since the shortage, of any pool, is not left. Nobody knows which offering the cloud takes from a pool that cannot be targeted.
func (s *Snapshot) stockLeft(known *pool.Pool, offered *pool.Offering) (left int, short bool) {
	shortage, short := s.Shortages[offered.Offering]
	if !short || known.Targeting == pool.TargetWhole {
		return 0, false
	}
	left = shortage.Left
	for i := range s.Purchases {
		if bought := &s.Purchases[i]; bought.Offering == offered.Offering && bought.Requested.After(shortage.Since) {
			left -= bought.Expected
		}
	}
	return left, true
}
