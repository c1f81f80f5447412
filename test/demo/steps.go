package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/test/rig"
)

const (
	// lookEvery is how often the demonstration looks at the world.
	lookEvery = 100 * time.Millisecond
	// traceGrace is how long after all jobs run the trace may take to reclaim something of theirs.
	traceGrace = 70 * time.Second
)

// demo is one run of the demonstration.
type demo struct {
	rig      *rig.Rig
	observer *observer
	timeline *timeline
	ledger   *ledger
	terminal *terminal
	// latest is the newest snapshot.
	latest snapshot
}

// step is a part of the demonstration that has to become true.
type step struct {
	// what is waited for, for the error.
	what   string
	within time.Duration
	holds  func() bool
	// otherwise is called once when the time is up, instead of failing; the time then starts again.
	otherwise func() error
}

// failure names what did not happen.
type failure struct{ what []string }

func (f failure) Error() string { return "did not happen: " + strings.Join(f.what, "; ") }

// follow submits the jobs and follows them until everything is given back.
func (s *demo) follow(ctx context.Context) error {
	s.terminal.heading("Three jobs want 17 GPUs, and there is not one")
	for _, j := range jobs() {
		if err := submit(ctx, s.rig.Cluster, j.Name); err != nil {
			return err
		}
		s.terminal.printf("submitted %s (%s)", j.Name, j.Title)
	}
	for _, phase := range s.phases() {
		if phase.title != "" {
			s.terminal.heading(phase.title)
		}
		for _, step := range phase.steps {
			if err := s.await(ctx, step); err != nil {
				return err
			}
		}
	}
	return check(s.timeline)
}

type phase struct {
	title string
	steps []step
}

func (s *demo) phases() []phase {
	c := s.timeline
	all := func(k kind) func() bool {
		return func() bool {
			for _, j := range jobs() {
				if c.count(k, j.Name) == 0 {
					return false
				}
			}
			return true
		}
	}
	return []phase{
		{"", []step{
			{what: "the pods of every job wait", within: 20 * time.Second, holds: all(podsPending)},
			{what: "the autoscaler buys for every job", within: 60 * time.Second, holds: all(scaleUp)},
			{what: "every job runs", within: 120 * time.Second, holds: s.allRan},
		}},
		{"The jobs run; the market moves on", []step{
			{what: "a spot instance that works for a job gets its notice", within: traceGrace,
				holds: func() bool { return c.count(notice, "") > 0 }, otherwise: s.forceReclaim},
			{what: "its node is tainted", within: noticePeriod, holds: func() bool { return c.count(tainted, "") > 0 }},
			{what: "its job is asked for a checkpoint", within: noticePeriod, holds: func() bool { return c.count(warned, "") > 0 }},
			{what: "the job says that it is saved", within: noticePeriod, holds: func() bool { return c.count(checkpointed, "") > 0 }},
			{what: "its pods leave in time", within: noticePeriod, holds: func() bool { return c.count(drained, "") > 0 }},
			{what: "the job that lost pods is whole again", within: 90 * time.Second, holds: s.recovered},
		}},
		{"The jobs end, and what is idle is given back", []step{
			{what: "every job succeeds", within: 120 * time.Second, holds: all(jobDone)},
			{what: "idle nodes are given back", within: 60 * time.Second, holds: func() bool { return c.count(scaleDown, "") > 0 }},
			// Of ten instances one is not released at the first try, and is waited for a minute before it is asked for again.
			{what: "nothing is left to pay for", within: 110 * time.Second, holds: func() bool { return len(s.latest.instances) == 0 }},
		}},
	}
}

// await looks at the world until the step holds.
func (s *demo) await(ctx context.Context, step step) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	deadline := time.Now().Add(step.within)
	for {
		if err := s.look(); err != nil {
			return err
		}
		if step.holds() {
			return nil
		}
		if time.Now().After(deadline) {
			if step.otherwise == nil {
				return failure{[]string{fmt.Sprintf("%s (waited %v)", step.what, step.within)}}
			}
			if err := step.otherwise(); err != nil {
				return err
			}
			step.otherwise, deadline = nil, time.Now().Add(step.within)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %w", context.Cause(ctx), failure{[]string{step.what}})
		case <-ticker.C:
		}
	}
}

// look brings timeline, ledger and terminal up to now.
func (s *demo) look() error {
	seen, err := s.observer.look(time.Now())
	if err != nil {
		return err
	}
	s.latest = seen
	s.terminal.print(s.timeline.advance(seen))
	if s.ledger.take(seen) {
		s.terminal.figures(s.ledger.last())
	}
	return nil
}

// allRan says whether each job has run in full, or is over.
func (s *demo) allRan() bool {
	for _, course := range s.timeline.courses {
		if course.announcedRunning < course.Pods && course.Done.IsZero() && course.Lost.IsZero() {
			return false
		}
	}
	return true
}

func (s *demo) recovered() bool {
	for _, course := range s.timeline.courses {
		if course.reduced && course.Done.IsZero() {
			return false
		}
	}
	return true
}

// forceReclaim gives notice to an instance that works for the elastic job: the trace took none in time.
func (s *demo) forceReclaim() error {
	for _, l := range s.timeline.ordered {
		if l.currentJob() == elasticJob && l.Notice.IsZero() && s.onlySpot(l) {
			s.terminal.printf("the trace took nothing of the jobs' within %v of their start, so the demo does", traceGrace)
			s.timeline.forced[l.Instance] = true
			return s.rig.Cloud.Reclaim(l.Instance)
		}
	}
	return failure{[]string{"no instance works for " + elasticJob + " that could be reclaimed"}}
}

func (s *demo) onlySpot(l *instanceRecord) bool {
	i, exists := s.latest.instances[l.Instance]
	return exists && i.SpotStrategy != "NoSpot"
}

// check names the kinds of events that are missing, and what came too late.
func check(c *timeline) error {
	var missing []string
	for _, j := range jobs() {
		for _, k := range []kind{podsPending, scaleUp, nodeReady, podsRunning} {
			if c.count(k, j.Name) == 0 {
				missing = append(missing, fmt.Sprintf("%s of %s", k, j.Name))
			}
		}
	}
	for _, k := range []kind{notice, tainted, warned, checkpointed, drained, podsMoved, scaleDown, released} {
		if c.count(k, "") == 0 {
			missing = append(missing, string(k))
		}
	}
	for _, l := range c.ordered {
		if l.Notice.IsZero() || l.Node == "" {
			continue
		}
		if l.Tainted.IsZero() || !l.Tainted.Before(l.Deadline) {
			missing = append(missing, fmt.Sprintf("taint of %s before its release", l.Node))
		}
		trains := l.job() == elasticJob && !c.isDone(elasticJob, l.Notice)
		if trains && !l.Drained.IsZero() && (l.Checkpointed.IsZero() || l.Drained.Before(l.Checkpointed)) {
			missing = append(missing, fmt.Sprintf("checkpoint of %s before %s was drained", elasticJob, l.Node))
		}
	}
	if len(missing) > 0 {
		return failure{missing}
	}
	return nil
}

// systemNode is the machine of a user's other pool: the autoscaler leaves it alone.
func systemNode(node *corev1.Node) *corev1.Node {
	node.Labels["alibabacloud.com/nodepool-id"] = "system"
	node.Labels[corev1.LabelTopologyZone] = zoneF
	node.Labels[corev1.LabelTopologyRegion] = region
	node.Spec.ProviderID = region + ".i-system"
	return node
}
