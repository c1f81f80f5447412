package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/drill"
)

// standing is how far the reclaim is. It is comparable.
type standing struct {
	// Of the doomed nodes.
	marked, empty, gone int
	// Of the pods that are or were on doomed nodes.
	pods, warned, told int
	bought             int
}

func (s *scene) standing() (now standing) {
	nodes := s.witness.Nodes()
	doomed := map[string]bool{}
	for id := range s.doomed {
		node := nodes[id]
		doomed[node.Name] = true
		if !node.Marked.IsZero() {
			now.marked++
		}
		if node.Busy == 0 {
			now.empty++
		}
		if !node.Gone.IsZero() {
			now.gone++
		}
	}
	for _, pod := range s.witness.Pods() {
		if !doomed[pod.Node] {
			continue
		}
		now.pods++
		if !pod.Warned.IsZero() {
			now.warned++
		}
		if !pod.Told.IsZero() {
			now.told++
		}
	}
	now.bought = drill.Bought(drill.Purchases(s.rig, s.began))
	return now
}

// step names it.
func (now standing) step(doomed int) string {
	switch {
	case now.marked == 0:
		return "notice"
	case now.marked < doomed:
		return "mark"
	case now.bought < doomed:
		return "replace"
	case now.warned < now.pods && now.told == 0:
		return "warn"
	case now.told == 0:
		return "wait"
	case now.empty < doomed:
		return "drain"
	case now.gone < doomed:
		return "empty"
	}
	return "gone"
}

func (now standing) String() string {
	return fmt.Sprintf("%d marked, %d bought, %d of %d pods warned, %d told to go, %d nodes empty, %d gone",
		now.marked, now.bought, now.warned, now.pods, now.told, now.empty, now.gone)
}

// kill carries the schedule out, and returns when each kill hit, and what.
func (s *scene) kill(ctx context.Context, schedule []kill) (moments []string, err error) {
	for i, k := range schedule {
		if err := sleep(ctx, time.Until(s.began.Add(k.at))); err != nil {
			return moments, err
		}
		leader, err := s.replicas.awaitLeader(ctx)
		if err != nil {
			return moments, err
		}
		if err := s.linger(ctx, k); err != nil {
			return moments, err
		}
		s.replicas.kill(leader, k.away)
		now := s.standing()
		moment := fmt.Sprintf("%5.1f s, %s: %s", time.Since(s.began).Seconds(), now.step(len(s.doomed)), now)
		fmt.Fprintf(s.told, "kill %2d of %d, %s at %s\n", i+1, len(schedule), leader.name, moment)
		moments = append(moments, moment)
	}
	return moments, nil
}

// linger lets the leader lead for a while, or until something happens.
func (s *scene) linger(ctx context.Context, k kill) error {
	if !k.onEvent {
		return sleep(ctx, k.lead)
	}
	const patience = 3 * time.Second
	before := s.standing()
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return s.standing() != before, nil
	})
	if ctx.Err() != nil {
		return err
	}
	return nil // nothing happened, which is a moment too
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
