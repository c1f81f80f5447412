package rpc

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/work"
)

// Limit is a token bucket: Burst requests at once, PerSecond in the long run.
type Limit struct {
	PerSecond float64
	Burst     int
}

// undocumentedLimit is for actions whose limit Alibaba Cloud does not document.
var undocumentedLimit = Limit{PerSecond: 10, Burst: 50}

// documentedLimits keep each action below what Alibaba Cloud documents per account, region and minute: burst and refill
// together never exceed 95 % of it in a minute. DescribeScalingInstances has a large burst because one listing of 10,000
// instances is 100 requests.
var documentedLimits = map[string]Limit{
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

// limits has one bucket per action. It is safe for concurrent use.
type limits struct {
	clock     clock.Clock
	overrides map[string]Limit
	mu        sync.Mutex
	buckets   map[string]*rate.Limiter
}

func newLimits(clk clock.Clock, overrides map[string]Limit) *limits {
	return &limits{clock: clk, overrides: overrides, buckets: map[string]*rate.Limiter{}}
}

func (l *limits) bucket(action string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.buckets[action]; ok {
		return b
	}
	limit, ok := l.overrides[action]
	if !ok {
		limit, ok = documentedLimits[action]
	}
	if !ok {
		limit = undocumentedLimit
	}
	b := rate.NewLimiter(rate.Limit(limit.PerSecond), max(limit.Burst, 1))
	l.buckets[action] = b
	return b
}

// wait returns once the action may be sent. If ctx ends first it gives the token back and returns the context's error.
func (l *limits) wait(ctx context.Context, service, action string) error {
	began := l.clock.Now()
	r := l.bucket(action).ReserveN(began, 1)
	delay := r.DelayFrom(began)
	if err := work.Sleep(ctx, l.clock, delay); err != nil {
		r.CancelAt(l.clock.Now())
		return err
	}
	throttleSeconds.WithLabelValues(service, action).Observe(delay.Seconds())
	return nil
}
