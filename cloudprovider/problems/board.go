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
	// sayAgainAfter is how often an Event is repeated while its problem stands: before the API server forgets it, which is
	// after an hour (--event-ttl of kube-apiserver).
	sayAgainAfter = 55 * time.Minute
	// patience is how long a transient problem stands before it is told.
	patience = 30 * time.Second
)

// EventSink records an Event about the autoscaler. It must not block.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}

// Board has the problems that stand, as each source last settled them, and whether the leader has begun its work: one
// refresh and one poll have succeeded. It is safe for concurrent use.
type Board struct {
	events EventSink
	clock  clock.PassiveClock
	began  time.Time

	mu       sync.Mutex
	standing map[key]*entry
	// firsts are when Refresh and Poll first succeeded.
	firsts map[Source]time.Time
}

type key struct {
	source       Source
	pool, reason string
}

type entry struct {
	Standing
	// said is what was told last, and when; empty as long as nothing was.
	said   string
	saidAt time.Time
}

// Standing is a problem that stands.
type Standing struct {
	Problem
	Source Source
	Since  time.Time
}

// NewBoard returns a board of a process that leads from now on.
func NewBoard(events EventSink, clk clock.PassiveClock) *Board {
	for _, condition := range conditions {
		leaderCondition.WithLabelValues(condition).Set(0)
	}
	return &Board{events: events, clock: clk, began: clk.Now(), standing: map[key]*entry{}, firsts: map[Source]time.Time{}}
}

// Settle takes all the problems of the source that stand now. None means that its work was done. What is new is told, and
// what has stood for an hour is told again; what is over is told too.
func (b *Board) Settle(source Source, now ...Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := make(map[key]bool, len(now))
	for _, problem := range now {
		k := key{source, problem.Pool, problem.Reason}
		found[k] = true
		if b.standing[k] == nil {
			b.standing[k] = &entry{Standing: Standing{Source: source, Since: b.clock.Now()}}
		}
		b.standing[k].Problem = problem
	}
	for k, e := range b.standing {
		if k.source == source && !found[k] {
			delete(b.standing, k)
			b.over(e)
		}
	}
	for _, e := range b.standing {
		b.tell(e)
	}
	b.expose()
	if len(now) == 0 {
		b.succeeded(source)
	}
}

// tell records an Event where it is time to. Needs b.mu.
func (b *Board) tell(e *entry) {
	now, message := b.clock.Now(), e.message(e.Source)
	switch {
	case e.said == "":
		if e.Transient && now.Sub(e.Since) < patience {
			return
		}
	case now.Sub(e.saidAt) >= sayAgainAfter:
	case e.Source == Pools && e.said != message:
	default: // what calls answer differs from one to the next, and says nothing new
		return
	}
	e.said, e.saidAt = message, now
	klog.Warning(message)
	b.events.Eventf(corev1.EventTypeWarning, eventReasons[e.Source], "%s", message)
}

// over tells that a problem is, if it was told that it stood. Needs b.mu.
func (b *Board) over(e *entry) {
	if e.said == "" {
		return
	}
	stood := b.clock.Now().Sub(e.Since).Round(time.Second)
	klog.Infof("Over after %v: %s", stood, e.said)
	b.events.Eventf(corev1.EventTypeNormal, "SpotProblemOver", "Over after %v: %s", stood, e.said)
}

// succeeded enters that the source did its work, and tells when the leader has begun its own. Needs b.mu.
func (b *Board) succeeded(source Source) {
	condition, counts := conditions[source]
	if _, already := b.firsts[source]; already || !counts {
		return
	}
	b.firsts[source] = b.clock.Now()
	leaderCondition.WithLabelValues(condition).Set(1)
	if b.ready() {
		b.events.Eventf(corev1.EventTypeNormal, "SpotLeaderReady", "The pools were read and reclaim notices asked for, %v after this replica became the leader",
			b.clock.Now().Sub(b.began).Round(time.Second))
	}
}

func (b *Board) ready() bool { return len(b.firsts) == len(conditions) }

// Report is what a board has at one time.
type Report struct {
	// Ready: one refresh and one poll have succeeded since the process leads.
	Ready bool
	// Firsts are when they first did; those are missing that did not.
	Firsts map[Source]time.Time
	// Problems are those that stand, what concerns all first.
	Problems []Standing
}

// Report returns what the board has now.
func (b *Board) Report() Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	report := Report{Ready: b.ready(), Firsts: map[Source]time.Time{}}
	for source, at := range b.firsts {
		report.Firsts[source] = at
	}
	for _, e := range b.standing {
		report.Problems = append(report.Problems, e.Standing)
	}
	slices.SortFunc(report.Problems, Standing.compare)
	return report
}
