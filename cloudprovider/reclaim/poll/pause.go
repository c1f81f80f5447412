package poll

import (
	"time"
)

const (
	// idleFactor is how much rarer polls are while nothing can be reclaimed, busyFactor how much more frequent while reclaims are
	// likely.
	idleFactor, busyFactor = 5, 2
	// pollQPS is how many requests per second polls make at most: less than half of what the API allows for DescribeInstances.
	pollQPS = 5
	// pageSize is how many instances one request lists or names.
	pageSize = 100

	// overdue is how long after its deadline an instance that still exists is no longer a reason to poll more often.
	overdue = 5 * time.Minute

	// A spot instance is protected for its first hour, then checked every five minutes. In the first two checks, instances that
	// were bought together are reclaimed together.
	protectedFor = time.Hour
	likelyFor    = 10 * time.Minute
)

// pause is how long to wait after a poll of so many requests. It is Interval, but
//
//   - half of it during a reclaim, since reclaims come many at a time, and for ten minutes after a spot instance has left its protected hour;
//   - five times of it while no Node runs on an instance that can be reclaimed: spot, or not known to be on-demand;
//   - never so short that polls make more than five requests per second. A list of 1,000 instances takes ten.
//
// A protected instance is not reason enough to poll less often: protection is a setting, which the Node does not state.
func (p *Poller) pause(requests int) time.Duration {
	interval := p.config.Interval
	switch p.likelihood() {
	case impossible:
		interval *= idleFactor
	case likely:
		interval /= busyFactor
	}
	return max(interval, time.Duration(requests)*time.Second/pollQPS)
}

// likelihood says how likely further notices are.
type likelihood int

const (
	impossible likelihood = iota
	usual
	likely
)

func (p *Poller) likelihood() likelihood {
	for id := range p.config.Notices.Reclaiming() {
		if n, _ := p.config.Notices.Get(id); len(p.config.Cluster.NodesOf(id)) > 0 && p.config.Clock.Since(n.Deadline) < overdue {
			return likely
		}
	}
	found := impossible
	for _, node := range p.config.Cluster.SpotNodes() {
		unprotected := p.config.Clock.Since(node.CreationTimestamp.Time) - protectedFor
		if unprotected >= 0 && unprotected < likelyFor {
			return likely
		}
		found = usual
	}
	return found
}

func pages(instances int) int { return (instances + pageSize - 1) / pageSize }
