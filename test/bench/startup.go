package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/rig"
)

// startupTimeout is after how long a process that is not ready is a failure.
const startupTimeout = 2 * time.Minute

// startupRow is how long the binary takes from its start until /readyz says that it leads: it has the lease, what it watches, the pools
// and their prices. The first start finds no lease, each other one that of a process that has given it back.
type startupRow struct {
	Pools     int     `json:"pools"`
	Offerings int     `json:"offerings"`
	P50       float64 `json:"p50_s"`
	Max       float64 `json:"max_s"`
	// RSSBytes is the most that any of the processes had by then.
	RSSBytes int64 `json:"rss_bytes"`
}

// measureStartup starts and stops the binary with the leader election that is shipped, in a cluster without Nodes.
func measureStartup(ctx context.Context, s *session) (r report.Report, err error) {
	of := shape{5, 10, 4}
	control, err := newRig(ctx, s, "startup", newWorld(of.pools, of.types, of.zones, 100))
	if err != nil {
		return r, err
	}
	defer control.Stop()
	row := startupRow{Pools: of.pools, Offerings: of.offerings()}
	var took []float64
	for i := range s.repetitions(10) {
		s.logf("startup: start %d", i+1)
		seconds, rss, err := startUp(ctx, control)
		if err != nil {
			return r, err
		}
		took = append(took, seconds)
		row.RSSBytes = max(row.RSSBytes, rss)
	}
	row.P50, row.Max = report.Percentile(took, 50), slices.Max(took)
	r.Rows = []startupRow{row}
	return r, nil
}

// startUp returns how long one process took to be ready, and how much memory it had then.
func startUp(ctx context.Context, control *rig.Rig) (seconds float64, rss int64, err error) {
	began := time.Now()
	a, err := control.StartAutoscaler(ctx, nil, "--leader-elect=true", "--scan-interval="+scanInterval.String(), "--v=1")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	var said string
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, startupTimeout, true, func(ctx context.Context) (bool, error) {
		ready, text, err := a.Readyz(ctx)
		said = text
		return err == nil && ready, nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("wait until the autoscaler is ready: %w; it says:\n%s", err, said)
	}
	seconds = time.Since(began).Seconds()
	rss, _, err = report.ResidentBytes(a.PID())
	return seconds, rss, err
}
