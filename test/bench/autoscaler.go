package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

// newRig starts a control plane and a cloud every call to which is as slow as callLatency. Nodes never fall silent:
// nobody looks after them.
func newRig(ctx context.Context, s *session, name string, world alisim.World) (*rig.Rig, error) {
	r, err := rig.New(ctx, rig.Options{
		World: s.tempered(world), Dir: filepath.Join(s.dir, name), WithoutNodes: true, NodeGracePeriod: 24 * time.Hour, Output: s.progress,
	})
	if err != nil {
		return nil, err
	}
	return r, slowDown(r)
}

func slowDown(r *rig.Rig) error {
	return r.Cloud.Fault(alisim.Fault{Kind: alisim.FaultLatency, Latency: callLatency})
}

// stopControllers ends, for good, what neither the scheduler nor the autoscaler needs once Nodes are up.
func stopControllers(ctx context.Context, r *rig.Rig) error {
	for _, component := range []string{cluster.ControllerManager, cluster.Kwok} {
		if err := r.Cluster.Kill(ctx, component); err != nil {
			return err
		}
	}
	return nil
}

// startAutoscaler starts the binary as it is shipped, but for the leader election, and returns when it has refreshed,
// knows the prices and has gone through its first loops.
func startAutoscaler(ctx context.Context, r *rig.Rig, flags ...string) (*rig.Autoscaler, error) {
	const scanInterval = 10 * time.Second // the default
	a, err := r.StartAutoscaler(ctx, nil, append([]string{
		"--scan-interval=" + scanInterval.String(), "--scale-down-unneeded-time=10m", "--scale-down-unready-time=20m", "--v=1",
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	if err := a.AwaitLoops(ctx, 1, 5*time.Minute); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

// deletePods removes all pods of the namespace default at once and waits until they are gone.
func deletePods(ctx context.Context, r *rig.Rig) error {
	pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
	now := int64(0)
	err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		left, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(left.Items) == 0, err
	})
}

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
