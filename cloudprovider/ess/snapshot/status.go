package snapshot

import (
	"cmp"
	"maps"
	"slices"

	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// Status returns the pools in the form in which the autoscaler serves them, by id.
func (s *Snapshot) Status(prices pool.Prices) []status.Pool {
	pools := make([]status.Pool, 0, len(s.Pools))
	for _, id := range slices.Sorted(maps.Keys(s.Pools)) {
		pools = append(pools, s.poolStatus(s.Pools[id], prices))
	}
	return pools
}

func (s *Snapshot) poolStatus(known *pool.Pool, prices pool.Prices) status.Pool {
	size := s.PoolSize(known.ID)
	result := status.Pool{
		ID: known.ID, Targeting: string(known.Targeting), MinSize: known.MinSize, MaxSize: known.MaxSize,
		Live: size.Live, Purchased: size.Purchased, Reclaiming: size.Reclaiming, Removing: size.Removing,
		Standby: size.Standby, Stopped: size.Stopped,
		Offerings: make([]status.Offering, 0, len(known.NodeGroups)), Purchases: []status.Purchase{},
	}
	for _, id := range slices.Sorted(maps.Keys(known.NodeGroups)) {
		result.Offerings = append(result.Offerings, s.offeringStatus(known, id, prices))
	}
	for _, bought := range s.Purchases {
		if bought.PoolID == known.ID && bought.Missing > 0 {
			result.Purchases = append(result.Purchases, s.purchaseStatus(bought))
		}
	}
	slices.SortFunc(result.Purchases, func(a, b status.Purchase) int {
		return cmp.Or(a.Requested.Compare(b.Requested), cmp.Compare(a.Offering, b.Offering))
	})
	return result
}

func (s *Snapshot) offeringStatus(known *pool.Pool, id string, prices pool.Prices) status.Offering {
	size, offered := s.GroupSize(id), known.NodeGroups[id]
	result := status.Offering{
		ID: id, InstanceType: offered.InstanceType, Zone: offered.Zone, PurchaseOption: offered.PurchaseOption(),
		Live: size.Live, Purchased: size.Purchased, Failed: size.Failed,
	}
	result.Room, result.BlockedBy = s.room(id, nil, prices)
	if price, priced := known.Price(offered.Offering, prices, nil); priced {
		result.Price = &price
	}
	if offered.PriceCap > 0 {
		result.PriceCap = &offered.PriceCap
	}
	if shortage, short := s.Shortages[offered.Offering]; short {
		result.Shortage = shortage.status()
	}
	return result
}

func (s *Snapshot) purchaseStatus(bought Purchase) status.Purchase {
	result := status.Purchase{
		Offering: s.GroupID(bought.PoolID, bought.Offering), Count: bought.Count, Missing: bought.Missing,
		Requested: bought.Requested.UTC(), Activity: bought.ActivityID,
	}
	if !bought.Accepted.IsZero() {
		accepted := bought.Accepted.UTC()
		result.Accepted = &accepted
	}
	return result
}
