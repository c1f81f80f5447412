package handshake

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// suspendWait is how long a system is left to end the pods of a suspended job by itself, if it is not known how long it takes.
	// Pods that are evicted before count as failed with some systems, and a few of them may be the end of the job.
	suspendWait = 2 * time.Minute
	// leastSuspendWait is how long it is left at least: until its controller has seen that the job is suspended.
	leastSuspendWait = 10 * time.Second
	// paceMargin is how many times as long as expected it is left.
	paceMargin = 2
	// paceCheck is how often it is looked at whether the system will get to the pods in time.
	paceCheck = 5 * time.Second
)

// pace is how quickly each job system ends the pods of jobs that were suspended, by what it has shown since it was last idle. In a
// reclaim of hundreds of jobs a controller with its default rate of requests takes minutes. It is safe for concurrent use.
type pace struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	systems map[string]*systemPace
}

// systemPace is the pace of one system.
type systemPace struct {
	// began is since when it has had jobs to end.
	began time.Time
	// waiting are those, with the time at which each was suspended; done is how many it has ended since began.
	waiting map[cluster.Party]time.Time
	done    int
}

func newPace(clk clock.PassiveClock) *pace {
	return &pace{clock: clk, systems: map[string]*systemPace{}}
}

// suspended notes that the party was suspended.
func (p *pace) suspended(party cluster.Party) {
	p.mu.Lock()
	defer p.mu.Unlock()
	system := p.systems[party.System]
	if system == nil || len(system.waiting) == 0 {
		system = &systemPace{began: p.clock.Now(), waiting: map[cluster.Party]time.Time{}}
		p.systems[party.System] = system
	}
	if _, waits := system.waiting[party]; !waits {
		system.waiting[party] = p.clock.Now()
	}
}

// ended notes that the pods of the party have ended, by its system or not.
func (p *pace) ended(party cluster.Party, bySystem bool) {
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

// until returns how long the system of a suspended party is to be left to end its pods, which have to be told to end by latest. A
// system that will not get to them in time, at its pace, is not waited for.
func (p *pace) until(party cluster.Party, latest time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	system := p.systems[party.System]
	if system == nil {
		return notice.Earlier(now.Add(suspendWait), latest)
	}
	since, waits := system.waiting[party]
	if !waits {
		since = now
	}
	until := notice.Earlier(since.Add(suspendWait), latest)
	expected, known := system.expected(now)
	switch {
	case !known:
		return until
	case now.Add(expected).After(latest):
		return notice.Earlier(since.Add(leastSuspendWait), until)
	default:
		return notice.Earlier(now.Add(leastSuspendWait+paceMargin*expected), until)
	}
}

// expected returns how long the system will take for all jobs that wait for it, and false if it has not ended any yet.
func (s *systemPace) expected(now time.Time) (time.Duration, bool) {
	if s.done == 0 {
		return 0, false
	}
	return now.Sub(s.began) / time.Duration(s.done) * time.Duration(len(s.waiting)), true
}

// noteEnd notes that the pods of the party are terminating or gone. Those that were released may have been evicted.
func (c *Controller) noteEnd(party cluster.Party) {
	s, open := c.table.get(party)
	c.pace.ended(party, !open || c.Clock.Now().Before(s.release))
}

// hurry releases the pods of a suspended job if its system turns out to be too slow. Those that the Job controller counts are first
// taken out of its account.
func (c *Controller) hurry(l loss, s state) {
	now := c.Clock.Now()
	if !s.suspended || !now.Before(s.release) {
		return
	}
	c.queue.AddAfter(l.party, paceCheck)
	from := notice.Later(c.pace.until(l.party, s.release), now)
	if !from.Before(s.release) {
		return
	}
	if !s.untrack.IsZero() {
		if from.Before(s.untrack) && c.table.update(l.party, s.id, func(s *state) { s.untrack = from }) {
			c.queue.AddAfter(l.party, from.Sub(now))
		}
		return // the untracker releases them
	}
	if c.table.update(l.party, s.id, func(s *state) { s.release = from }) {
		for node := range l.nodes() {
			c.Drains.AddAfter(node, from.Sub(now))
		}
	}
}

// isBeingEnded returns whether all pods that leave are terminating.
func (l *loss) isBeingEnded() bool {
	return !slices.ContainsFunc(l.leaving, func(pod leavingPod) bool { return pod.DeletionTimestamp == nil })
}
