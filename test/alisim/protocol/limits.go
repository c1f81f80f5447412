package protocol

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// publishedLimits are requests per 60 seconds, per account and region, as far as Alibaba publishes them.
var publishedLimits = map[string]int{
	"DescribeScalingInstances":      2000,
	"DescribeScalingConfigurations": 2000,
	"RemoveInstances":               2000,
	"DescribePrice":                 500,
}

// otherLimit is the limit of most actions of ECS, and the guess for those without a published one.
const otherLimit = 1000

// limits holds a bucket per action.
type limits struct {
	mu        sync.Mutex
	perMinute map[string]int
	buckets   map[string]*rate.Limiter
}

func newLimits(perMinute map[string]int) *limits {
	return &limits{perMinute: perMinute, buckets: map[string]*rate.Limiter{}}
}

// allow says whether a request of the action may pass now.
func (l *limits) allow(action string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, known := l.buckets[action]
	if !known {
		n := l.limit(action)
		bucket = rate.NewLimiter(rate.Limit(float64(n)/60), n)
		if n == 0 {
			bucket.SetLimit(rate.Inf)
		}
		l.buckets[action] = bucket
	}
	return bucket.AllowN(now, 1)
}

func (l *limits) limit(action string) int {
	if n, given := l.perMinute[action]; given {
		return n
	}
	if n, given := l.perMinute["*"]; given {
		return n
	}
	return cmp.Or(publishedLimits[action], otherLimit)
}
