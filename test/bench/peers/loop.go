package main

import (
	"context"
	"fmt"
	"time"

	"gpu-spot-autoscaler/test/bench/population"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/rig"
)

// measureLoop runs the peer over 1,000 nodes of 20 groups with 30 pods each, and nothing to do but to look at the twentieth of the nodes
// that trains nothing.
func measureLoop(ctx context.Context, s *session, p peer) ([]found, error) {
	const groups, perGroup, podsPerNode, loops = 20, 50, 30, 5
	var all []group
	for i := range groups {
		all = append(all, group{fmt.Sprintf("asg-%02d", i), small, perGroup, 2 * perGroup})
	}
	t, err := newTrial(ctx, s, "loop", rig.Options{World: newWorld(all...), WithoutNodes: true})
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if err := population.Fill(ctx, t.Rig, podsPerNode, t.logf); err != nil {
		return nil, err
	}
	if err := t.start(ctx, p, "--scale-down-unneeded-time=1h"); err != nil {
		return nil, err
	}
	before, err := t.autoscaler.Loops(ctx)
	if err != nil {
		return nil, err
	}
	from := time.Now()
	if err := t.autoscaler.AwaitLoops(ctx, before.Count+loops, 30*time.Minute); err != nil {
		return nil, err
	}
	took := time.Since(from)
	after, err := t.autoscaler.Loops(ctx)
	if err != nil {
		return nil, err
	}
	_, peak, err := report.ResidentBytes(t.autoscaler.PID())
	return []found{
		{"1,000 idle nodes: main loop, mean, s", number((after.Seconds - before.Seconds) / float64(after.Count-before.Count))},
		{"1,000 idle nodes: cloud calls per minute", number(float64(t.callsWithin(from, took)) / took.Minutes())},
		{"1,000 idle nodes: resident memory at most, MiB", number(float64(peak) / (1 << 20))},
	}, err
}
