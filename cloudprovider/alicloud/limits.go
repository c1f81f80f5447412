package alicloud

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Limit is a token bucket: Burst requests at once, PerSecond in the long run.
type Limit struct {
	PerSecond float64
	Burst     int
}

// frugal is the limit of actions whose real limit is not documented.
var frugal = Limit{PerSecond: 10, Burst: 50}

// defaultLimits keep each action below what Alibaba documents per account, region and minute: in no minute do burst
// and refill together pass 95 % of it. DescribeScalingInstances has a large burst because one listing of 10,000
// instances is 100 requests.
var defaultLimits = map[string]Limit{
	"DescribeScalingInstances":      {PerSecond: 25, Burst: 400}, // 2000 a minute
	"DescribeScalingConfigurations": {PerSecond: 30, Burst: 100}, // 2000 a minute
	"RemoveInstances":               {PerSecond: 30, Burst: 100}, // 2000 a minute
	"DescribeInstances":             {PerSecond: 14, Burst: 100}, // 1000 a minute
	"DescribeInstanceTypes":         {PerSecond: 14, Burst: 100}, // 1000 a minute
	"DescribeSpotPriceHistory":      {PerSecond: 14, Burst: 100}, // 1000 a minute
	"DescribeSpotAdvice":            {PerSecond: 14, Burst: 100}, // 1000 a minute
	"DescribeAvailableResource":     {PerSecond: 14, Burst: 100}, // 1000 a minute
	"DescribePrice":                 {PerSecond: 7, Burst: 50},   // 500 a minute
}

// limits holds one bucket per action. It is safe for concurrent use.
type limits struct {
	clock  clock.Clock
	given  map[string]Limit
	mu     sync.Mutex
	bucket map[string]*rate.Limiter
}

func newLimits(clk clock.Clock, given map[string]Limit) *limits {
	return &limits{clock: clk, given: given, bucket: map[string]*rate.Limiter{}}
}

func (l *limits) of(action string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.bucket[action]; ok {
		return b
	}
	limit, ok := l.given[action]
	if !ok {
		limit, ok = defaultLimits[action]
	}
	if !ok {
		limit = frugal
	}
	b := rate.NewLimiter(rate.Limit(limit.PerSecond), max(limit.Burst, 1))
	l.bucket[action] = b
	return b
}

// wait returns when the action may be sent, or with the context's error and its token given back.
func (l *limits) wait(ctx context.Context, service, action string) error {
	began := l.clock.Now()
	r := l.of(action).ReserveN(began, 1)
	delay := r.DelayFrom(began)
	if err := sleep(ctx, l.clock, delay); err != nil {
		r.CancelAt(l.clock.Now())
		return err
	}
	throttleSeconds.WithLabelValues(service, action).Observe(delay.Seconds())
	return nil
}
