package mark

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Patience is how long other work waits for a mark that is due. A Node that cannot be marked does not hold it up for longer.
	// Until all Nodes of a correlated reclaim are marked, a pod that is evicted from one could be scheduled to the next.
	Patience = 10 * time.Second
	// notifyPatience is how long the purchase of replacements waits for it. That takes a whole core, which is better left to the
	// API server while there are marks to be made.
	notifyPatience = 3 * time.Second
)

// Backlog has the Nodes that are not marked yet. It is safe for concurrent use.
type Backlog struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// due are since when the Nodes wait for their first mark.
	due map[string]time.Time
	// announcing is how many sources are adding Nodes at the moment.
	announcing int
	// news is true if there are notices of which nobody was notified yet.
	news bool
	// afterwards are to be called once no marks are waiting.
	afterwards []func()
}

// NewBacklog returns an empty Backlog.
func NewBacklog(clk clock.PassiveClock) *Backlog {
	return &Backlog{clock: clk, due: map[string]time.Time{}}
}

// Announcing has Waiting return true until the caller calls done: there may be more Nodes to add.
func (b *Backlog) Announcing() (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.announcing++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.announcing--
	}
}

// Add adds a Node that needs its first mark.
func (b *Backlog) Add(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.due[node]; !waits {
		b.due[node] = b.clock.Now()
	}
}

// Done removes a Node that is marked, or needs no mark any more.
func (b *Backlog) Done(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.due, node)
}

// Waiting returns whether Nodes are about to be marked.
func (b *Backlog) Waiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting(Patience)
}

func (b *Backlog) waiting(patience time.Duration) bool {
	if b.announcing > 0 {
		return true
	}
	for _, since := range b.due {
		if b.clock.Since(since) < patience {
			return true
		}
	}
	return false
}

// AddNews notes that there is a notice of which somebody has to be notified.
func (b *Backlog) AddNews() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news = true
}

// TakeNews returns whether somebody is to be notified now: there is news, and its Nodes are marked or have waited too long. It
// returns true once for all news.
func (b *Backlog) TakeNews() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.news || b.waiting(notifyPatience) {
		return false
	}
	b.news = false
	return true
}

// Afterwards has do called once no Nodes wait for their marks, or they have waited too long.
func (b *Backlog) Afterwards(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.afterwards = append(b.afterwards, do)
}

// TakeAfterwards returns what is to be called now.
func (b *Backlog) TakeAfterwards() (due []func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.afterwards) == 0 || b.waiting(Patience) {
		return nil
	}
	due, b.afterwards = b.afterwards, nil
	return due
}
