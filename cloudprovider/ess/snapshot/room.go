package snapshot

import (
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// Room returns how many more instances of the node group may be bought. The node groups of a pool share it.
func (s *Snapshot) Room(groupID string, prices pool.Prices) int {
	return s.RoomBeside(groupID, nil, prices)
}

// RoomBeside returns how many instances of the node group may be bought beside those that are planned, by node group.
func (s *Snapshot) RoomBeside(groupID string, planned map[string]int, prices pool.Prices) int {
	room, _ := s.room(groupID, planned, prices)
	return room
}

// room returns how many more instances of the node group may be bought, and if none, what stands in the way, as the status has it.
func (s *Snapshot) room(groupID string, planned map[string]int, prices pool.Prices) (instances int, blockedBy string) {
	known, offered := s.PoolOf(groupID), s.Offering(groupID)
	switch {
	case known == nil || offered == nil:
		return 0, status.BlockedRetired
	case known.Unbuyable != "":
		return 0, status.BlockedOutOfOrder
	case offered.Retired:
		return 0, status.BlockedRetired
	case !known.Affordable(offered, prices):
		return 0, status.BlockedPrice
	}
	affordable, capped := s.withinSpendCap(known, offered, planned, prices)
	if capped && affordable <= 0 {
		return 0, status.BlockedSpend
	}
	size := s.PoolSize(known.ID)
	own := known.MaxSize - size.Live - size.Purchased
	group := known.Group.MaxSize - size.InGroup()
	room := min(own, group)
	left, short := s.stockLeft(known, offered)
	for id, count := range planned {
		if s.Groups[id].PoolID == known.ID {
			room -= count
		}
		if s.Groups[id].Offering == offered.Offering {
			left -= count
		}
	}
	if room <= 0 {
		return 0, status.BlockedSize
	}
	if capped {
		room = min(room, affordable)
	}
	switch {
	case !short:
		return room, ""
	case left <= 0:
		return 0, status.BlockedStock
	}
	return min(room, left), ""
}
