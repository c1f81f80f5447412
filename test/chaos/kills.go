package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/drill"
)

// progress is how far the reclaim is. It is comparable.
type progress struct {
	// Of the reclaiming nodes.
	marked, empty, gone int
	// Of the pods that are or were on reclaiming nodes.
	pods, warned, deleting int
	bought                 int
}

func (e *experiment) progress() (now progress) {
	nodes := e.observer.Nodes()
	reclaiming := map[string]bool{}
	for id := range e.reclaiming {
		node := nodes[id]
		reclaiming[node.Name] = true
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
	for _, pod := range e.observer.Pods() {
		if !reclaiming[pod.Node] {
			continue
		}
		now.pods++
		if !pod.Warned.IsZero() {
			now.warned++
		}
		if !pod.Deleting.IsZero() {
			now.deleting++
		}
	}
	now.bought = drill.Bought(drill.Purchases(e.rig, e.began))
	return now
}

// step names it.
func (now progress) step(reclaiming int) string {
	switch {
	case now.marked == 0:
		return "notice"
	case now.marked < reclaiming:
		return "mark"
	case now.bought < reclaiming:
		return "replace"
	case now.warned < now.pods && now.deleting == 0:
		return "warn"
	case now.deleting == 0:
		return "wait"
	case now.empty < reclaiming:
		return "drain"
	case now.gone < reclaiming:
		return "empty"
	}
	return "gone"
}

func (now progress) String() string {
	return fmt.Sprintf("%d marked, %d bought, %d of %d pods warned, %d told to go, %d nodes empty, %d gone",
		now.marked, now.bought, now.warned, now.pods, now.deleting, now.empty, now.gone)
}

// kill carries the schedule out, and returns when each kill hit, and what.
func (e *experiment) kill(ctx context.Context, schedule []kill) (moments []string, err error) {
	for i, k := range schedule {
		if err := sleep(ctx, time.Until(e.began.Add(k.at))); err != nil {
			return moments, err
		}
		leader, err := e.replicas.awaitLeader(ctx)
		if err != nil {
			return moments, err
		}
		if err := e.awaitMoment(ctx, k); err != nil {
			return moments, err
		}
		e.replicas.kill(leader, k.away)
		now := e.progress()
		moment := fmt.Sprintf("%5.1f s, %s: %s", time.Since(e.began).Seconds(), now.step(len(e.reclaiming)), now)
		fmt.Fprintf(e.output, "kill %2d of %d, %s at %s\n", i+1, len(schedule), leader.name, moment)
		moments = append(moments, moment)
	}
	return moments, nil
}

// awaitMoment lets the leader lead for a while, or until something happens.
func (e *experiment) awaitMoment(ctx context.Context, k kill) error {
	if !k.onEvent {
		return sleep(ctx, k.lead)
	}
	const patience = 3 * time.Second
	before := e.progress()
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return e.progress() != before, nil
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
