package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/rig"
)

// measurePending creates GPU pods while nothing else is in the cluster, each number of them three times, and takes the median.
func measurePending(ctx context.Context, s *session, p peer) (all []found, err error) {
	for _, pods := range []int{1, 100, 1000} {
		var requested, running []figure
		for i := range 3 {
			r, w, err := pending(ctx, s, p, pods, i)
			if err != nil {
				return nil, fmt.Errorf("%d pods: %w", pods, err)
			}
			requested, running = append(requested, r), append(running, w)
		}
		all = append(all, found{fmt.Sprintf("%d pending pods: accepted requests for all, s", pods), median(requested)})
		if pods < nodesWorthWaitingFor {
			all = append(all, found{fmt.Sprintf("%d pending pods: all run, s", pods), median(running)})
		}
	}
	return all, nil
}

const (
	pendingTimeout = 5 * time.Minute
	// nodesWorthWaitingFor is from how many nodes on it takes this machine longer to bring them up than the peers to buy them.
	nodesWorthWaitingFor = 1000
)

func pending(ctx context.Context, s *session, p peer, pods, repetition int) (requested, running figure, err error) {
	world := newWorld(group{"asg-small", small, 0, 1200}, group{"asg-big", big, 0, 1200})
	t, err := newTrial(ctx, s, fmt.Sprintf("%d-%d", pods, repetition), rig.Options{World: world, WithoutNodes: pods >= nodesWorthWaitingFor})
	if err != nil {
		return requested, running, err
	}
	defer t.stop()
	if err := t.start(ctx, p); err != nil {
		return requested, running, err
	}
	began, err := t.submit(ctx, pods)
	if err != nil {
		return requested, running, err
	}
	if requested, err = t.until(ctx, began, pendingTimeout, t.requested(pods)); err != nil || pods >= nodesWorthWaitingFor {
		return requested, running, err
	}
	running, err = t.until(ctx, began, pendingTimeout, t.running(pods))
	return requested, running, err
}

// median takes figures that say that something did not happen for the longest.
func median(figures []figure) figure {
	slices.SortFunc(figures, func(a, b figure) int {
		switch {
		case a.text != "" && b.text == "":
			return 1
		case a.text == "" && b.text != "":
			return -1
		case a.number < b.number:
			return -1
		}
		return 1
	})
	return figures[len(figures)/2]
}
