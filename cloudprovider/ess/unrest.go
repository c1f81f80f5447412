package ess

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
)

const (
	// unrestTime is for how long after a notice an offering is thought less of.
	unrestTime = 10 * time.Minute
	// unrestSurcharge is the part by which its price counts for more meanwhile: what is bought where instances are being
	// reclaimed may not live long, so an offering that costs little more is the better bargain.
	unrestSurcharge = .5
)

// unrest remembers which offerings had an instance reclaimed of late. The instances of all pools count together: a type
// in a zone is one market. Nothing of it is stored: a new process learns it from the instances that are still doomed.
// It changes in observe only, and is safe for concurrent use.
type unrest struct {
	clock clock.PassiveClock
	mu    sync.RWMutex
	until map[pricing.Offering]time.Time
	// counted are the doomed instances whose notice was taken in.
	counted sets.Set[string]
}

func newUnrest(clk clock.PassiveClock) *unrest {
	return &unrest{clock: clk, until: map[pricing.Offering]time.Time{}, counted: sets.New[string]()}
}

// observe takes all spot instances that are doomed. Those that it did not know make their offering restless from now on.
func (u *unrest) observe(doomed map[string]pricing.Offering) {
	now := u.clock.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, offering := range doomed {
		if u.counted.Has(id) {
			continue
		}
		if _, known := u.until[offering]; !known {
			klog.Infof("Instances of %s in %s are being reclaimed: its price counts %g times for %v",
				offering.InstanceType, offering.Zone, 1+unrestSurcharge, unrestTime)
		}
		u.until[offering] = now.Add(unrestTime)
	}
	u.counted = sets.KeySet(doomed)
	maps.DeleteFunc(u.until, func(_ pricing.Offering, end time.Time) bool { return !end.After(now) })
	restlessOfferings.Set(float64(len(u.until)))
}

// surcharge is the part by which the price of the offering counts for more.
func (u *unrest) surcharge(offering pricing.Offering) float64 {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if _, restless := u.until[offering]; restless {
		return unrestSurcharge
	}
	return 0
}
