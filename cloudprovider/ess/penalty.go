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
	// penaltyTime is how long after a reclaim notice the price of an offering is raised.
	penaltyTime = 10 * time.Minute
	// penalty is the factor by which the price is raised: what is bought where instances are being reclaimed may not live
	// long, so an offering that costs little more is the better choice.
	penalty = 1.5
)

// interruptionPenalty raises the price of offerings of which the market took an instance away lately. The instances of all
// pools count together, because an instance type in a zone is one market. Nothing is stored: a new process learns of the
// losses from the instances that still exist. It is safe for concurrent use.
type interruptionPenalty struct {
	clock clock.PassiveClock

	mu    sync.RWMutex
	until map[pricing.Offering]time.Time
	// counted are the instances that are being taken away and have raised a price.
	counted sets.Set[string]
}

func newInterruptionPenalty(clk clock.PassiveClock) *interruptionPenalty {
	return &interruptionPenalty{clock: clk, until: map[pricing.Offering]time.Time{}, counted: sets.New[string]()}
}

// Observe takes the spot instances that the market takes away, with their offerings. Those that are new raise the price of their
// offering from now on.
func (p *interruptionPenalty) Observe(lost map[string]pricing.Offering) {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, offering := range lost {
		if p.counted.Has(id) {
			continue
		}
		if _, known := p.until[offering]; !known {
			klog.InfoS("Instances are being reclaimed, so the price of their offering counts for more",
				"instanceType", offering.InstanceType, "zone", offering.Zone, "factor", penalty, "for", penaltyTime)
		}
		p.until[offering] = now.Add(penaltyTime)
	}
	p.counted = sets.KeySet(lost)
	maps.DeleteFunc(p.until, func(_ pricing.Offering, end time.Time) bool { return !end.After(now) })
	penalizedOfferings.Set(float64(len(p.until)))
}

// Of returns the interruption penalty of the offering, or 1 if it has none.
func (p *interruptionPenalty) Of(offering pricing.Offering) float64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if _, penalized := p.until[offering]; penalized {
		return penalty
	}
	return 1
}
