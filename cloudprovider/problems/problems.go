// Package problems keeps the problems that keep the autoscaler from its work, and reports them: in Events, in metrics, in
// /readyz and in the status.
package problems

import (
	"cmp"
	"fmt"
	"strings"
)

// Source is the work in which a problem was found.
type Source string

const (
	// Refresh reads pools and instances. Without it nothing is bought.
	Refresh Source = "refresh"
	// Poll asks for reclaim notices.
	Poll Source = "poll"
	// Pools checks the settings and the state of each pool.
	Pools Source = "pools"
	// Cluster looks for what else in the cluster acts upon the same jobs.
	Cluster Source = "cluster"
)

// Problem is something that is wrong until somebody fixes it, or until it passes.
type Problem struct {
	// Pool is the scaling group; empty for a problem of all.
	Pool string
	// Reason is the kind of the problem: a label of metrics, and the key under which docs/operations.md explains it.
	Reason string
	// Cause says what is wrong, without a full stop. Fix is a sentence that says what to do; it may be empty.
	Cause, Fix string
	// Transient: the problem often passes by itself, so it is reported only after a while.
	Transient bool
}

// Text returns the cause and what to do about it.
func (p Problem) Text() string {
	if p.Fix == "" {
		return p.Cause
	}
	return strings.TrimSuffix(p.Cause, ".") + ". " + p.Fix
}

// eventReasons are the reasons of Events about problems, by source.
var eventReasons = map[Source]string{Refresh: "SpotRefreshFailed", Poll: "SpotReclaimPollFailed", Pools: "SpotPoolProblem", Cluster: "SpotClusterProblem"}

// Line returns the problem in one line, as in /readyz: source, scaling group, reason, text.
func (p Problem) Line(source Source) string {
	head := string(source)
	if p.Pool != "" {
		head += " " + p.Pool
	}
	return head + " " + p.Reason + ": " + p.Text()
}

// message returns the message of the Event about the problem.
func (p Problem) message(source Source) string {
	switch source {
	case Refresh:
		return fmt.Sprintf("The pools cannot be read (%s): %s", p.Reason, p.Text())
	case Poll:
		return fmt.Sprintf("Reclaim notices cannot be asked for (%s): %s", p.Reason, p.Text())
	case Cluster:
		return fmt.Sprintf("Cluster (%s): %s", p.Reason, p.Text())
	}
	if p.Pool == "" {
		return fmt.Sprintf("Pools (%s): %s", p.Reason, p.Text())
	}
	return fmt.Sprintf("Pool %s (%s): %s", p.Pool, p.Reason, p.Text())
}

func (s Active) compare(other Active) int {
	return cmp.Or(cmp.Compare(s.Source.rank(), other.Source.rank()), cmp.Compare(s.Pool, other.Pool), cmp.Compare(s.Reason, other.Reason))
}

// rank orders sources. Those without which nothing works come first.
func (s Source) rank() int {
	switch s {
	case Refresh:
		return 0
	case Poll:
		return 1
	case Pools:
		return 2
	}
	return 3
}
