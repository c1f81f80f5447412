package work

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Every calls do, and again after each interval, until ctx ends. If do takes longer than the interval, calls are left out.
// The functions of k8s.io/apimachinery/pkg/util/wait that do so go by the real clock, or are deprecated.
func Every(ctx context.Context, clk clock.WithTicker, interval time.Duration, do func()) {
	ticker := clk.NewTicker(interval)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Sleep returns after the duration, or with the error of the context if that ends before. It does not wait for a duration that is not positive.
func Sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
