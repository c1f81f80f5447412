package snapshot

import (
	"fmt"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// Obstacle returns why no more instances of the node group can be bought, nil if some can.
func (s *Snapshot) Obstacle(groupID string, prices pool.Prices) *reasons.Reason {
	known, offered := s.PoolOf(groupID), s.Offering(groupID)
	switch _, blockedBy := s.room(groupID, nil, prices); blockedBy {
	case status.BlockedOutOfOrder:
		return reasons.New(reasons.OutOfOrder, problem.Unbuyable.Fix(), "%s", known.Unbuyable)
	case status.BlockedRetired:
		return reasons.New(reasons.Retired, "Add the instance type to the scaling configuration again, and its vSwitch to the scaling group.",
			"no longer launched by the scaling group")
	case status.BlockedPrice:
		return known.PriceObstacle(offered, prices)
	case status.BlockedSpend:
		spent, priced := s.Spend(known, nil, prices)
		return spendObstacle(known, offered, spent, priced, prices)
	case status.BlockedStock:
		shortage := s.Shortages[offered.Offering]
		return reasons.New(reasons.NoStock, fmt.Sprintf("Wait until %s, when %s in %s is asked for again, or add other instance types or zones to pool %s.",
			shortage.Until.UTC().Format("15:04 MST"), offered.InstanceType, offered.Zone, known.ID), "%s", shortage)
	case status.BlockedSize:
		return s.sizeObstacle(known)
	}
	return nil
}

// sizeObstacle returns what fills the pool, or its scaling group.
func (s *Snapshot) sizeObstacle(known *pool.Pool) *reasons.Reason {
	size := s.PoolSize(known.ID)
	leaving := leavingText(size)
	if counted := size.Live + size.Purchased; counted >= known.MaxSize {
		message := fmt.Sprintf("pool %s at its maximum: %d of %d", known.ID, counted, known.MaxSize)
		if size.Purchased > 0 {
			message += fmt.Sprintf(" (%d of them on their way)", size.Purchased)
		}
		if leaving != "" {
			message += ", beside " + leaving
		}
		return reasons.New(reasons.PoolMaximum, fmt.Sprintf("Raise the maximum of pool %s above %d (tag %s, and the maximum of the scaling group).",
			known.ID, known.MaxSize, api.TagMaxSize), "%s", message)
	}
	message := fmt.Sprintf("scaling group %s at its maximum: %d of %d", known.ID, size.InGroup(), known.Group.MaxSize)
	if leaving != "" {
		message += " (with " + leaving + ")"
	}
	mend := fmt.Sprintf("Raise the maximum of scaling group %s above %d.", known.ID, known.Group.MaxSize)
	if size.Reclaiming+size.Removing > 0 {
		mend = fmt.Sprintf("Wait until the instances that leave are gone, or raise the maximum of scaling group %s above %d.", known.ID, known.Group.MaxSize)
	}
	return reasons.New(reasons.GroupMaximum, mend, "%s", message)
}

// leavingText names the instances that are no capacity, empty where there are none.
func leavingText(size *PoolSize) string {
	var leaving []string
	for _, part := range []struct {
		instances int
		are       string
	}{
		{size.Reclaiming, "under reclaim"}, {size.Removing, "being removed"}, {size.Standby, "in standby"}, {size.Stopped, "stopped"},
	} {
		if part.instances > 0 {
			leaving = append(leaving, fmt.Sprintf("%d %s", part.instances, part.are))
		}
	}
	return strings.Join(leaving, ", ")
}
