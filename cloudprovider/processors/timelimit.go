package processors

import (
	"time"

	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/processors/binpacking"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// TimeLimit ends the bin-packing of a scale-up after --max-binpacking-time, be it over one stage of offerings or several; see
// StagedOrchestrator. The scale-up goes on with the options that there are by then. Core's own limiter only says so in the
// log (processors/binpacking/time_limiter.go of Cluster Autoscaler 1.33).
type TimeLimit struct {
	binpacking.BinpackingLimiter
	limit time.Duration
	clock clock.PassiveClock
	began time.Time
}

var _ binpacking.BinpackingLimiter = (*TimeLimit)(nil)

// NewTimeLimit puts itself in front of another limiter.
func NewTimeLimit(next binpacking.BinpackingLimiter, limit time.Duration, clk clock.PassiveClock) *TimeLimit {
	return &TimeLimit{BinpackingLimiter: next, limit: limit, clock: clk}
}

// begin starts the time of a scale-up.
func (l *TimeLimit) begin() { l.began = l.clock.Now() }

// StopBinpacking says whether the time is over, or the other limiter stops.
func (l *TimeLimit) StopBinpacking(ctx *cacontext.AutoscalingContext, options []expander.Option) bool {
	stop := l.BinpackingLimiter.StopBinpacking(ctx, options)
	if spent := l.clock.Since(l.began); spent > l.limit {
		klog.Warningf("Choosing between %d options, without looking at the other offerings: --max-binpacking-time is over after %v", len(options), spent)
		return true
	}
	return stop
}
