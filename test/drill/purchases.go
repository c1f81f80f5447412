package drill

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// Purchase is one that the cloud has accepted.
type Purchase struct {
	At time.Time
	// Instances are those that came, or, while it is under way, those that were asked for. What came and was rolled back is
	// none: it never was in service.
	Instances int
	Pool      string
}

// Purchases are those accepted since then, in their order. One that was asked for again under its token counts once.
func Purchases(r *rig.Rig, since time.Time) []Purchase {
	var found []Purchase
	for _, pool := range r.World.Pools {
		group, _ := r.Cloud.Group(pool.ID)
		for _, activity := range group.Activities {
			p := Purchase{At: activity.Started, Instances: brought(activity), Pool: pool.ID}
			if p.Instances > 0 && !p.At.Before(since) {
				found = append(found, p)
			}
		}
	}
	slices.SortFunc(found, func(a, b Purchase) int { return a.At.Compare(b.At) })
	return found
}

func brought(activity alisim.ActivityView) int {
	if activity.Ended.IsZero() {
		return activity.Asked
	}
	return len(activity.Created) // without those that were rolled back
}

// Bought is how many instances the purchases bring.
func Bought(purchases []Purchase) (instances int) {
	for _, p := range purchases {
		instances += p.Instances
	}
	return instances
}
