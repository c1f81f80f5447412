// Package cloud is what every service of a simulated cloud stands on: one lock, one clock, an agenda of what will
// happen by itself, and ids.
package cloud

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/temper"
)

// Cloud is one account in one region. Its lock guards everything that the services keep; Run holds it while it does
// what is on the agenda. All methods but Run, CatchUp and NextDue expect the caller to hold it.
type Cloud struct {
	sync.Mutex
	Region, AccountID string
	Clock             clock.Clock
	// Takes is how long things take, Temper how hard the cloud is on its clients.
	Takes  Durations
	Temper temper.Rules
	// Random is seeded, so that the same world asked the same questions in the same order answers the same.
	Random *rand.Rand

	made   uint64
	agenda agenda
	// wake tells Run that the agenda begins earlier than it thinks.
	wake chan struct{}
}

// New returns a lenient cloud in which nothing happens yet, and everything takes no time.
func New(region, accountID string, clk clock.Clock, seed uint64) *Cloud {
	return &Cloud{
		Region: region, AccountID: accountID, Clock: clk,
		Temper: temper.Lenient(), Random: rand.New(rand.NewPCG(seed, seed)), wake: make(chan struct{}, 1),
	}
}

// Run does what is on the agenda until the context ends.
func (c *Cloud) Run(ctx context.Context) {
	for {
		timer := c.nextTimer()
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-c.wake:
			timer.Stop()
		}
	}
}

// idle is how long Run sleeps when the agenda is empty; whoever adds an entry wakes it.
const idle = time.Hour

// nextTimer does what is due and returns a timer for what is not. A clock that jumped between reading it and setting
// the timer would leave the timer late, so the clock is read again.
func (c *Cloud) nextTimer() clock.Timer {
	for {
		now := c.Clock.Now()
		wait := c.catchUp(now)
		timer := c.Clock.NewTimer(wait)
		if c.Clock.Now().Sub(now) < wait {
			return timer
		}
		timer.Stop()
	}
}

// CatchUp does everything that is due by now, for whoever drives the clock.
func (c *Cloud) CatchUp() { c.catchUp(c.Clock.Now()) }

// catchUp does everything due and returns how long nothing else is.
func (c *Cloud) catchUp(now time.Time) time.Duration {
	c.Lock()
	defer c.Unlock()
	for {
		do, due := c.agenda.pop(now)
		if !due {
			break
		}
		do(now)
	}
	if next, any := c.agenda.next(); any {
		return next.Sub(now)
	}
	return idle
}

// NextDue returns when the next thing will happen; false where nothing will.
func (c *Cloud) NextDue() (time.Time, bool) {
	c.Lock()
	defer c.Unlock()
	return c.agenda.next()
}

// Later puts something on the agenda. It will be done with the lock held.
func (c *Cloud) Later(delay time.Duration, do func(now time.Time)) {
	c.At(c.Clock.Now().Add(delay), do)
}

// At is Later with a moment instead of a delay.
func (c *Cloud) At(due time.Time, do func(now time.Time)) {
	first, any := c.agenda.next()
	c.agenda.add(due, do)
	if !any || due.Before(first) {
		select {
		case c.wake <- struct{}{}:
		default: // Run is awake already
		}
	}
}

// Ordinal returns the next place in the order of making.
func (c *Cloud) Ordinal() uint64 {
	c.made++
	return c.made
}

const idAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

// NewID makes an id such as "i-t4n0…", of the length that Alibaba's have.
func (c *Cloud) NewID(prefix string) string {
	text := make([]byte, 20)
	for i := range text {
		text[i] = idAlphabet[c.Random.IntN(len(idAlphabet))]
	}
	return prefix + string(text)
}
