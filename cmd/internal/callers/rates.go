// Package callers bounds what callers may take up: connections, and requests per second.
package callers

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxLimiters is more than a node has pods. Whoever is forgotten begins with a full burst.
const maxLimiters = 1024

// Rates are a limit for each caller, so that nobody uses up what others may do. They are safe for concurrent use.
type Rates struct {
	perSecond rate.Limit
	burst     int

	mu       sync.Mutex
	limiters *lru.Cache
}

// NewRates allows each caller so many per second, and the burst at once.
func NewRates(perSecond rate.Limit, burst int) *Rates {
	return &Rates{perSecond: perSecond, burst: burst, limiters: lru.New(maxLimiters)}
}

// Allow says whether the caller may do one more now.
func (r *Rates) Allow(caller string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter, ok := r.limiters.Get(caller)
	if !ok {
		limiter = rate.NewLimiter(r.perSecond, r.burst)
		r.limiters.Add(caller, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(now, 1)
}
