package ledger

import (
	"fmt"
	"time"
)

// goneFor is how long an instance is remembered that is not listed any more. If it is listed again, it counts from where it ended.
const goneFor = time.Hour

// accountUntil counts all instances until the time. It returns an error if the ledger begins anew for that.
func (l *Ledger) accountUntil(instances []Instance, at time.Time) (anew error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if currency := l.config.Prices.Currency(); currency != "" {
		if known := l.totals.currency; known != "" && known != currency {
			anew = fmt.Errorf("the currency of the account is %s, and was %s", currency, known)
			l.totals, l.last = newTotals(), nil
		}
		l.totals.currency = currency
	}
	t := l.totals
	if t.since.IsZero() {
		t.since, t.until = at, at
	}
	if !at.After(t.until) {
		return anew
	}
	now := make(map[string]Instance, len(instances))
	for _, i := range instances {
		now[i.ID] = i
		t.add(i, l.costOf(i, at.Sub(l.from(i, at))), at)
		delete(l.last, i.ID)
		delete(l.gone, i.ID)
	}
	for id, i := range l.last { // released since
		half := at.Sub(t.until) / 2
		t.add(i, l.costOf(i, half), t.until)
		l.gone[id] = t.until.Add(half)
	}
	for id, until := range l.gone {
		if at.Sub(until) > goneFor {
			delete(l.gone, id)
		}
	}
	l.last, t.until = now, at
	t.fold(at)
	return anew
}

// from returns from when on the instance has to be accounted for: an instance that is new to a process that has seen all others counts from its
// creation, however late it was listed.
func (l *Ledger) from(i Instance, at time.Time) time.Time {
	until := l.totals.until
	if end, isBack := l.gone[i.ID]; isBack {
		return end
	}
	_, counted := l.last[i.ID]
	isNew := l.last != nil && !counted && !i.Created.IsZero()
	switch {
	case i.Created.After(at):
		return at
	case i.Created.After(until):
		return i.Created
	case isNew && i.Created.After(l.totals.since):
		return i.Created
	case isNew:
		return l.totals.since
	}
	return until
}

// costOf returns what the instance costs for so long, without its pods.
func (l *Ledger) costOf(i Instance, length time.Duration) Amounts {
	hours := length.Hours()
	a := Amounts{InstanceHours: hours, GPUHours: hours * i.GPUs}
	if i.Reclaiming {
		a.Reclaiming = a.GPUHours
	}
	price, known := l.config.Prices.Price(i.Offering)
	if !known {
		a.Unpriced = hours
		return a
	}
	onDemand := i.Offering
	onDemand.Spot = false
	listed, known := l.config.Prices.Price(onDemand)
	if !known {
		listed = price
	}
	a.Cost, a.OnDemand = hours*price, hours*listed
	return a
}

const (
	// endedAfter is how long a job has to be without pods to have ended, and after how long it is told again if it could not be told.
	endedAfter = time.Minute
	// tellFor is after how long that is given up.
	tellFor = time.Hour
	// mostTold bounds the jobs that are told at once: each may cost a request.
	mostTold = 20
)

// ended returns jobs that have ended and are to be told.
func (t *totals) ended(now time.Time) map[Job]Amounts {
	ended := map[Job]Amounts{}
	for job, amounts := range t.jobs {
		if len(ended) == mostTold {
			break
		}
		gone := now.Sub(amounts.lastSeen)
		if !amounts.announced && gone >= endedAfter && now.Sub(amounts.tried) >= endedAfter {
			amounts.tried, amounts.announced = now, gone > tellFor
			ended[job] = amounts.Amounts
		}
	}
	return ended
}

// announce notes whether a job was told that it has ended.
func (t *totals) announce(job Job, done bool) {
	if amounts := t.jobs[job]; amounts != nil && done {
		amounts.announced = true
	}
}
