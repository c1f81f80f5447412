package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// kill is a moment at which the leader is to be killed, if there is one; else as soon as there is.
type kill struct {
	// at is counted from the notices.
	at time.Duration
	// lead is how long the leader may lead at least.
	lead time.Duration
	// onEvent waits for the next thing to happen instead.
	onEvent bool
	// away is how long the killed one stays away: long enough to lose its lease, or not at all.
	away time.Duration
}

const (
	// maxLead is the longest lead.
	maxLead = 1500 * time.Millisecond
	// Of how many kills one waits for an event.
	onEventOneIn = 4
)

// schedule draws moments from the span, ever denser toward its beginning: six in ten in the first third.
func schedule(random *rand.Rand, kills int, span time.Duration) []kill {
	moments := make([]time.Duration, kills)
	for i := range moments {
		u := random.Float64()
		moments[i] = time.Duration(u * u * float64(span))
	}
	slices.Sort(moments)
	all := make([]kill, kills)
	for i, at := range moments {
		all[i] = kill{at: at, lead: time.Duration(random.Int64N(int64(maxLead))), onEvent: i%onEventOneIn == onEventOneIn/2}
		if random.IntN(2) == 0 {
			all[i].away = 2 * leaseDuration
		}
	}
	return all
}
