package notice

import "time"

// A pushed event is as good as the token of its sender. As long as neither ECS nor the instance itself says the same, its Node is
// marked, its pods are warned and their replacement is bought, all of which can be taken back. But nothing is evicted.

const (
	// unconfirmedMargin is how long before the deadline evictions begin if ECS cannot be asked and the instance does not say.
	// Later, pods with the usual grace period would not be saved. Of a short notice it is half.
	unconfirmedMargin         = 90 * time.Second
	unconfirmedMarginFraction = 2

	// minDoubt and maxDoubt bound what DoubtFor returns.
	minDoubt = 15 * time.Second
	maxDoubt = time.Minute
)

// DoubtFor returns a time for Config.Doubt that is long enough for two polls at the interval.
func DoubtFor(pollInterval time.Duration) time.Duration {
	return min(max(minDoubt, 2*pollInterval), maxDoubt)
}

// evictUnconfirmedFrom is when evictions begin although nothing has confirmed the notice.
func (n Notice) evictUnconfirmedFrom() time.Time {
	return n.Deadline.Add(-min(unconfirmedMargin, n.Length()/unconfirmedMarginFraction))
}

// DoubtfulUntil returns whether nothing may be evicted for the notice yet, and until when at most. ECS is always given the time
// to speak, because whoever sends an event chooses its time, and with it the deadline.
func (s *Store) DoubtfulUntil(n Notice) (until time.Time, doubtful bool) {
	if n.Confirmed {
		return time.Time{}, false
	}
	s.mu.Lock()
	heard := Later(n.FirstSeen, s.began)
	s.mu.Unlock()
	until = Later(n.evictUnconfirmedFrom(), Later(heard, s.Verdicts.contradictedAt(n.InstanceID)).Add(s.doubt))
	return until, s.clock.Now().Before(until)
}
