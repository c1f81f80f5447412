package app

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// Requests of one pod, per second. A process that waits for a notice asks every two seconds, and a pod has some dozens
	// of them at most.
	requestsPerSecond, requestsBurst = 20, 100
	// Acknowledgements of one pod, or of one request from the node's own address. Each may be a write to the Node.
	acknowledgementsPerSecond, acknowledgementsBurst = 1, 20
	// maxLimiters is more than a node has pods. Whoever is forgotten begins with a full burst.
	maxLimiters = 1024
)

// rates are a limit for each caller, so that nobody uses up what others may do. They are safe for concurrent use.
type rates struct {
	perSecond rate.Limit
	burst     int

	mu       sync.Mutex
	limiters *lru.Cache
}

func newRates(perSecond rate.Limit, burst int) *rates {
	return &rates{perSecond: perSecond, burst: burst, limiters: lru.New(maxLimiters)}
}

func (r *rates) allow(caller string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter, ok := r.limiters.Get(caller)
	if !ok {
		limiter = rate.NewLimiter(r.perSecond, r.burst)
		r.limiters.Add(caller, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(now, 1)
}
