package problems

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// repeatAfter is how often the Event of a problem is repeated while the problem is active. It is below the hour after which the
	// API server deletes Events (--event-ttl of kube-apiserver).
	repeatAfter = 55 * time.Minute
	// transientFor is how long a transient problem has to be active before it is reported.
	transientFor = 30 * time.Second
)

// EventSink records an Event about the autoscaler. It must not block.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}

// Board has the active problems, as each source last stated them, and whether the leader is ready: one refresh and
// one poll have succeeded. It is safe for concurrent use.
type Board struct {
	mu    sync.Mutex
	notes notes
}

// notes are what is on a board.
type notes struct {
	events EventSink
	clock  clock.PassiveClock
	began  time.Time
	active map[key]*entry
	// firsts are the times of the first success of Refresh and Poll.
	firsts map[Source]time.Time
}

type key struct {
	source       Source
	pool, reason string
}

type entry struct {
	Active
	// reported is the message of the last Event, empty before the first. reportedAt is when it was recorded.
	reported   string
	reportedAt time.Time
}

// Active is a problem that is not over.
type Active struct {
	Problem
	Source Source
	Since  time.Time
}

// NewBoard returns the board of a process that has just become the leader.
func NewBoard(events EventSink, clk clock.PassiveClock) *Board {
	for _, condition := range conditions {
		leaderCondition.WithLabelValues(condition).Set(0)
	}
	return &Board{notes: notes{events: events, clock: clk, began: clk.Now(), active: map[key]*entry{}, firsts: map[Source]time.Time{}}}
}

// Update takes all active problems of the source. None means that its work succeeded. Update records an Event about
// each problem that is new, that is over, or whose last Event is almost an hour old.
func (b *Board) Update(source Source, now ...Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes.update(source, now)
}

func (n *notes) update(source Source, now []Problem) {
	found := make(map[key]bool, len(now))
	for _, problem := range now {
		k := key{source, problem.Pool, problem.Reason}
		found[k] = true
		if n.active[k] == nil {
			n.active[k] = &entry{Active: Active{Source: source, Since: n.clock.Now()}}
		}
		n.active[k].Problem = problem
	}
	for k, e := range n.active {
		if k.source == source && !found[k] {
			delete(n.active, k)
			n.reportOver(e)
		}
	}
	for _, e := range n.active {
		n.report(e)
	}
	exposeActive(n.active)
	if len(now) == 0 {
		n.succeeded(source)
	}
}

// report records an Event about the problem if one is due.
func (n *notes) report(e *entry) {
	now, message := n.clock.Now(), e.message(e.Source)
	switch {
	case e.reported == "":
		if e.Transient && now.Sub(e.Since) < transientFor {
			return
		}
	case now.Sub(e.reportedAt) >= repeatAfter:
	case e.Source == Pools && e.reported != message:
	default: // messages of calls differ each time, which is no news
		return
	}
	e.reported, e.reportedAt = message, now
	klog.InfoS("There is a problem", "source", e.Source, "pool", e.Pool, "reason", e.Reason, "problem", e.Text())
	n.events.Eventf(corev1.EventTypeWarning, eventReasons[e.Source], "%s", message)
}

// reportOver records an Event about the end of the problem, if there was one about the problem.
func (n *notes) reportOver(e *entry) {
	if e.reported == "" {
		return
	}
	stood := n.clock.Now().Sub(e.Since).Round(time.Second)
	klog.InfoS("A problem is over", "source", e.Source, "pool", e.Pool, "reason", e.Reason, "stood", stood)
	n.events.Eventf(corev1.EventTypeNormal, "SpotProblemOver", "Over after %v: %s", stood, e.reported)
}

// succeeded enters that the work of the source succeeded, and records an Event if that makes the leader ready.
func (n *notes) succeeded(source Source) {
	condition, counts := conditions[source]
	if _, already := n.firsts[source]; already || !counts {
		return
	}
	n.firsts[source] = n.clock.Now()
	leaderCondition.WithLabelValues(condition).Set(1)
	if n.ready() {
		n.events.Eventf(corev1.EventTypeNormal, "SpotLeaderReady", "The pools were read and reclaim notices asked for, %v after this replica became the leader",
			n.clock.Now().Sub(n.began).Round(time.Second))
	}
}

func (n *notes) ready() bool { return len(n.firsts) == len(conditions) }

// Report is the content of a board at one moment.
type Report struct {
	// Ready: one refresh and one poll have succeeded since the process became the leader.
	Ready bool
	// Firsts are the times of their first success; a source that has not succeeded is missing.
	Firsts map[Source]time.Time
	// Problems are the active ones. Those without which nothing works come first.
	Problems []Active
}

// Report returns the content of the board.
func (b *Board) Report() Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notes.content()
}

func (n *notes) content() Report {
	report := Report{Ready: n.ready(), Firsts: map[Source]time.Time{}}
	for source, at := range n.firsts {
		report.Firsts[source] = at
	}
	for _, e := range n.active {
		report.Problems = append(report.Problems, e.Active)
	}
	slices.SortFunc(report.Problems, Active.compare)
	return report
}
