package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// goneFor is how long an instance is remembered that is not listed any more, so that it is not taken for a new one when it comes back.
	goneFor = 7 * 24 * time.Hour
	// listGap is for how long a list may lack an instance that runs. One that comes back later was stopped.
	listGap = 10 * time.Minute
)

// accountUntil counts all instances until the time. It returns an error if the ledger begins anew for that.
func (l *Ledger) accountUntil(instances []Instance, at time.Time) (anew error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if currency := l.config.Prices.Currency(); currency != "" {
		if known := l.totals.currency; known != "" && known != currency {
			anew = fmt.Errorf("the currency of the account is %s, and was %s", currency, known)
			l.totals, l.last, l.gone = newTotals(), nil, map[string]time.Time{}
		}
		l.totals.currency = currency
	}
	t := l.totals
	if t.since.IsZero() {
		t.since, t.until = at, at
	}
	if l.last == nil {
		l.begun = t.until
	}
	if !at.After(t.until) {
		return anew
	}
	// After a conflict, time is accounted for again that the metrics have already.
	measured := !t.until.Before(l.measuredUntil)
	now := make(map[string]Instance, len(instances))
	for _, i := range instances {
		now[i.ID] = i
		lived := period{l.from(i, at), at}
		t.add(i, l.costOf(i, lived), lived, measured)
		delete(l.last, i.ID)
		delete(l.gone, i.ID)
	}
	for id, i := range l.last { // released since
		released := t.until.Add(at.Sub(t.until) / 2)
		t.add(i, l.costOf(i, period{t.until, released}), period{t.until, t.until}, measured)
		l.gone[id] = released
	}
	for id, until := range l.gone {
		if at.Sub(until) > goneFor {
			delete(l.gone, id)
		}
	}
	l.last, t.until, l.measuredUntil = now, at, at
	t.fold(at)
	return anew
}

// running returns the instances that were listed last, by this process or the one before, by offering, in order, and as of when. l.mu is held.
func (l *Ledger) running() (lines []RunningLine, at time.Time) {
	if l.listedAt.IsZero() {
		return l.totals.running, l.totals.runningAt
	}
	byOffering := map[Offering]*RunningLine{}
	for _, i := range l.listed {
		offering := offeringOf(i.Pool, i.Offering)
		line := byOffering[offering]
		if line == nil {
			line = &RunningLine{Offering: offering}
			line.Price, _ = l.config.Prices.Price(i.Offering)
			byOffering[offering] = line
		}
		line.Instances = append(line.Instances, i.ID)
	}
	lines = make([]RunningLine, 0, len(byOffering))
	for _, line := range byOffering {
		slices.Sort(line.Instances)
		lines = append(lines, *line)
	}
	slices.SortFunc(lines, func(a, b RunningLine) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.PurchaseOption, b.PurchaseOption))
	})
	return lines, l.listedAt
}

// period is what is accounted for of an instance.
type period struct{ from, to time.Time }

// from returns from when on the instance has to be accounted for. One that was created while this process has accounted counts from then,
// however late it was listed.
func (l *Ledger) from(i Instance, at time.Time) time.Time {
	until := l.totals.until
	if end, isBack := l.gone[i.ID]; isBack {
		if at.Sub(end) <= listGap {
			return end
		}
		return until
	}
	_, counted := l.last[i.ID]
	isNew := l.last != nil && !counted && i.Created.After(l.begun) && at.Sub(i.Created) < goneFor
	switch {
	case i.Created.After(at):
		return at
	case i.Created.After(until), isNew:
		return i.Created
	case l.last != nil && !counted && at.Sub(l.begun) <= listGap: // it was missing from the first lists of this process
		return l.begun
	}
	return until
}

// costOf returns what the instance costs in a period, without its pods.
func (l *Ledger) costOf(i Instance, p period) Amounts {
	hours := p.to.Sub(p.from).Hours()
	a := Amounts{InstanceHours: hours, GPUHours: hours * i.GPUs}
	if i.Reclaiming {
		a.Reclaiming = a.GPUHours
	}
	cost, known := l.paid(i, p)
	if !known {
		a.Unpriced = hours
		return a
	}
	a.Cost, a.OnDemand = cost, cost
	onDemand := i.Offering
	onDemand.Spot = false
	if listed, known := l.config.Prices.Price(onDemand); known {
		a.OnDemand = hours * listed
	}
	return a
}

// paid returns what is paid for the instance in a period: in its protected time the price of its purchase, and then the market price.
func (l *Ledger) paid(i Instance, p period) (cost float64, known bool) {
	if i.Created.IsZero() || !i.Offering.Spot {
		return l.config.Prices.MarketCost(i.Offering, p.from, p.to)
	}
	protected := min(max(i.Created.Add(i.Protected).Sub(p.from), 0), p.to.Sub(p.from))
	bought, known := l.config.Prices.PriceAt(i.Offering, i.Created)
	if !known {
		return 0, false
	}
	cost, known = l.config.Prices.MarketCost(i.Offering, p.from.Add(protected), p.to)
	return bought*protected.Hours() + cost, known
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
