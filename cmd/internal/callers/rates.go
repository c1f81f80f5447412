// Package callers limits how many connections and requests per second a server accepts from each caller.
package callers

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxLimiters is how many callers are remembered, more than a node has pods. A caller that is forgotten has its full burst again.
const maxLimiters = 1024

// Rates limits the rate of requests of each caller, so that none uses up the share of others. It is safe for concurrent use.
type Rates struct {
	perSecond rate.Limit
	burst     int

	mu       sync.Mutex
	limiters *lru.Cache
}

// NewRates returns a limit of requests per second for each caller. Each may send the burst at once.
func NewRates(perSecond rate.Limit, burst int) *Rates {
	return &Rates{perSecond: perSecond, burst: burst, limiters: lru.New(maxLimiters)}
}

// Allow returns whether the caller may send a request now, and counts it.
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
