// Package pace knows how quickly each job system ends the pods of jobs that were suspended.
package pace

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// SuspendWait is how long a system is left to end the pods of a suspended job by itself, if it is not known how long it takes.
	// Pods that are evicted before count as failed with some systems, and a few of them may be the end of the job.
	SuspendWait = 2 * time.Minute
	// leastWait is how long it is left at least: until its controller has seen that the job is suspended.
	leastWait = 10 * time.Second
	// margin is how many times as long as expected it is left.
	margin = 2
)

// Pace is how quickly each job system ends the pods of jobs that were suspended, by what it has shown since it was last idle. In a
// reclaim of hundreds of jobs a controller with its default rate of requests takes minutes. It is safe for concurrent use.
type Pace struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	systems map[string]*progress
}

// progress is what one system has to end, and has ended.
type progress struct {
	// began is since when it has had jobs to end, and last when it ended one last.
	began, last time.Time
	// waiting are those.
	waiting map[cluster.Party]entry
	// suspended is how many there were since began, and done how many of them it has ended.
	suspended, done int
}

// entry is a party that was suspended at a time, before those of a higher order. Controllers work through a queue, so that is about the
// order in which they come to them.
type entry struct {
	since time.Time
	order int
}

// New returns a Pace that knows nothing.
func New(clk clock.PassiveClock) *Pace { return &Pace{clock: clk, systems: map[string]*progress{}} }

// Suspended notes that the party was suspended.
func (p *Pace) Suspended(party cluster.Party) {
	p.mu.Lock()
	defer p.mu.Unlock()
	system := p.systems[party.System]
	if system == nil || len(system.waiting) == 0 {
		system = &progress{began: p.clock.Now(), waiting: map[cluster.Party]entry{}}
		p.systems[party.System] = system
	}
	if _, waits := system.waiting[party]; !waits {
		system.waiting[party] = entry{since: p.clock.Now(), order: system.suspended}
		system.suspended++
	}
}

// Ended notes that the pods of the party have ended, by its system or not.
func (p *Pace) Ended(party cluster.Party, bySystem bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	system := p.systems[party.System]
	if system == nil {
		return
	}
	if _, waits := system.waiting[party]; waits {
		delete(system.waiting, party)
		if bySystem {
			system.done++
			system.last = p.clock.Now()
		}
	}
}

// Until returns until when the system of a suspended party is to be left to end its pods, which have to be told to end by latest. A
// system that will not get to this party in time, at its pace, is not waited for.
func (p *Pace) Until(party cluster.Party, latest time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	system, waits := p.systems[party.System], false
	var e entry
	if system != nil {
		e, waits = system.waiting[party]
	}
	if !waits {
		return notice.Earlier(now.Add(SuspendWait), latest)
	}
	until := notice.Earlier(e.since.Add(SuspendWait), latest)
	if system.done == 0 {
		return until
	}
	if now.Add(system.expected(system.turn(e), now)).After(until) {
		return notice.Earlier(e.since.Add(leastWait), until)
	}
	return notice.Earlier(now.Add(leastWait+margin*system.expected(len(system.waiting), now)), until)
}

// turn returns as which of those that wait the system comes to the entry.
func (b *progress) turn(e entry) int {
	turn := 1
	for _, other := range b.waiting {
		if other.order < e.order {
			turn++
		}
	}
	return turn
}

// expected returns how long the system will take for so many parties. It has ended some already, and may have stopped.
func (b *progress) expected(parties int, now time.Time) time.Duration {
	each := max(b.last.Sub(b.began)/time.Duration(b.done), now.Sub(b.last))
	return each * time.Duration(parties)
}
