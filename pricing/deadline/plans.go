package deadline

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostPlans is how many plans are kept, of up to ten megabytes each.
	mostPlans = 16
	// idleAfter is how long a plan has not been asked for when another may take its place.
	idleAfter = 5 * time.Minute
)

// plan is what is known of jobs of some kind.
type plan struct {
	key
	offers *Offers
	now    atomic.Pointer[outlook]
	queued atomic.Bool
	made   time.Time
	// namespace is that of a job that the plan is for, used when that asked for it last, and asked when any did. The lock of the plans guards them.
	namespace   string
	used, asked time.Time
}

func (p *plan) hasLearnt() bool {
	known := p.now.Load()
	return known != nil && known.planner != nil
}

// key tells plans apart.
type key struct {
	grid   Grid
	offers string
}

// askedBy enters who asks. Once the namespace that the plan counts for does not any more, it counts for another that does.
func (p *plan) askedBy(namespace string, now time.Time) {
	if now.Sub(p.used) >= idleAfter {
		p.namespace = namespace
	}
	if p.namespace == namespace {
		p.used = now
	}
	p.asked = now
}

// plans are those that are kept. They are safe for concurrent use.
type plans struct {
	mu  sync.Mutex
	all map[key]*plan
}

// get returns the plan of the key, which it makes if there is none. If too many are in use, it is not kept: jobs of all namespaces would take each
// other's place before anything was learnt. A namespace with more plans than others gives one up for that of another.
func (p *plans) get(of key, offers *Offers, namespace string, now time.Time) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.all[of]; ok {
		known.askedBy(namespace, now)
		return known
	}
	made := &plan{key: of, offers: offers, namespace: namespace, made: now, used: now, asked: now}
	if len(p.all) >= mostPlans {
		idlest := p.idlest(namespace, now)
		if idlest == nil {
			return made
		}
		delete(p.all, idlest.key)
	}
	p.all[of] = made
	return made
}

// idlest returns the plan that gives up its place for one of the namespace: the one that was asked for the longest ago, of all if it is idle, and
// else of the namespace with the most; nil if that has no more than the given one would have then. The lock is held.
func (p *plans) idlest(namespace string, now time.Time) *plan {
	if idlest := p.askedFirst(""); now.Sub(idlest.asked) >= idleAfter {
		return idlest
	}
	counts, most := map[string]int{}, namespace
	for _, each := range p.all {
		counts[each.namespace]++
	}
	for other, count := range counts {
		if count > counts[most] {
			most = other
		}
	}
	if counts[most] <= counts[namespace]+1 {
		return nil
	}
	return p.askedFirst(most)
}

// askedFirst returns the plan that was asked for the longest ago, of those of the namespace, or of all if that is empty. The lock is held.
func (p *plans) askedFirst(namespace string) (first *plan) {
	for _, each := range p.all {
		isOne := namespace == "" || each.namespace == namespace
		if isOne && (first == nil || each.asked.Before(first.asked)) {
			first = each
		}
	}
	return first
}

// keeps returns whether the plan is kept.
func (p *plans) keeps(one *plan) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[one.key] == one
}

// larger returns a plan that has learnt for the same jobs with more slack, whose tables hold those of this one; the plan itself if there is none.
// The slack of a job that waits gets less. Each time that it needs a smaller table a Guess would decide until that
// has learnt.
func (p *plans) larger(than *plan, now time.Time) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := than.key; at.grid.slack < mostSlack; {
		at.grid.slack = min(sizeFor(at.grid.slack+1), mostSlack)
		if known, ok := p.all[at]; ok && known.hasLearnt() {
			known.asked = now
			return known
		}
	}
	return than
}
