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
	systems map[string]*backlog
}

// backlog is what one system has to end, and has ended.
type backlog struct {
	// began is since when it has had jobs to end.
	began time.Time
	// waiting are those, with the time at which each was suspended; done is how many it has ended since began.
	waiting map[cluster.Party]time.Time
	done    int
}

// New returns a Pace that knows nothing.
func New(clk clock.PassiveClock) *Pace { return &Pace{clock: clk, systems: map[string]*backlog{}} }

// Suspended notes that the party was suspended.
func (p *Pace) Suspended(party cluster.Party) {
	p.mu.Lock()
	defer p.mu.Unlock()
	system := p.systems[party.System]
	if system == nil || len(system.waiting) == 0 {
		system = &backlog{began: p.clock.Now(), waiting: map[cluster.Party]time.Time{}}
		p.systems[party.System] = system
	}
	if _, waits := system.waiting[party]; !waits {
		system.waiting[party] = p.clock.Now()
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
		}
	}
}

// Until returns how long the system of a suspended party is to be left to end its pods, which have to be told to end by latest. A
// system that will not get to them in time, at its pace, is not waited for.
func (p *Pace) Until(party cluster.Party, latest time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	system := p.systems[party.System]
	if system == nil {
		return notice.Earlier(now.Add(SuspendWait), latest)
	}
	since, waits := system.waiting[party]
	if !waits {
		since = now
	}
	until := notice.Earlier(since.Add(SuspendWait), latest)
	expected, known := system.expected(now)
	switch {
	case !known:
		return until
	case now.Add(expected).After(latest):
		return notice.Earlier(since.Add(leastWait), until)
	default:
		return notice.Earlier(now.Add(leastWait+margin*expected), until)
	}
}

// expected returns how long the system will take for all jobs that wait for it, and false if it has not ended any yet.
func (b *backlog) expected(now time.Time) (time.Duration, bool) {
	if b.done == 0 {
		return 0, false
	}
	return now.Sub(b.began) / time.Duration(b.done) * time.Duration(len(b.waiting)), true
}
