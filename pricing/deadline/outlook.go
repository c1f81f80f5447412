package deadline

import (
	"math"
	"time"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/finish"
)

// leastSeen is how many ticks must lie between the first and the last that was seen of the market.
const leastSeen = 300

// outlook is what a plan knows at a time. It does not change.
type outlook struct {
	// planner is nil if too little was seen.
	planner   *finish.Planner
	spot      []pricing.Offering
	shares    []float64
	onDemand  float64
	hasOthers bool
	// learnt and looked are when, and the others how many changes of the market there had been.
	learnt, looked                 time.Time
	changesAtLearning, changesSeen int
}

func (o *outlook) isDue(now time.Time, changes int) bool {
	return o == nil || o.changesSeen != changes || now.Sub(o.looked) >= lookEvery || o.hasToLearn(now, changes)
}

// hasToLearn returns whether the outlook is a day old, or the market has changed more than in all the time before. One that has not
// learnt anything yet tries whenever it looks.
func (o *outlook) hasToLearn(now time.Time, changes int) bool {
	if o == nil || now.Sub(o.learnt) >= learnEvery || o.planner == nil {
		return true
	}
	return now.Sub(o.learnt) >= soonest && changes > 2*o.changesAtLearning
}

// learn learns from all that was seen.
func (d *Desk) learn(p *plan, now time.Time, changes int) *outlook {
	o := &outlook{onDemand: d.onDemand(p.offers), learnt: now, changesAtLearning: changes}
	if math.IsInf(o.onDemand, 1) {
		return o
	}
	offers, hasOthers := d.best(p.offers, o.onDemand)
	o.hasOthers = hasOthers
	protected := time.Duration(math.MaxInt64)
	for _, each := range offers {
		o.spot, o.shares = append(o.spot, each.Offering), append(o.shares, each.Share)
		protected = min(protected, each.Protected)
	}
	history, since := d.config.Memory.History(o.spot)
	if since.IsZero() || now.Sub(since) < leastSeen*p.terms.tick {
		return o
	}
	terms := finish.Terms{
		Work: p.terms.work, Slack: p.terms.slack, Restart: p.terms.restart, Protected: int(protected / p.terms.tick),
		OnDemand: o.onDemand * p.terms.tick.Hours(),
	}
	if planner := finish.NewPlanner(history, terms, p.terms.tick, p.terms.tick, since, now); planner.HasLearnt() {
		o.planner = planner
	}
	return o
}

// look returns the outlook with the present as it is.
func (d *Desk) look(o *outlook, now time.Time, changes int) *outlook {
	next := *o
	next.looked, next.changesSeen = now, changes
	if o.planner != nil {
		history, _ := d.config.Memory.History(o.spot)
		next.planner = o.planner.Beside(history)
	}
	return &next
}

// choose returns what may be bought for a job of that state.
func (d *Desk) choose(o *outlook, g grid, state finish.State, now time.Time) Choice {
	present := d.config.Memory.Present(o.spot, now)
	if present.Stale {
		return Undecided
	}
	situation := finish.Situation{Now: now, Gone: map[finish.Place]bool{}, Outage: present.Outage, Prices: make([]float64, len(o.spot))}
	for i, offering := range o.spot {
		situation.Gone[finish.Place(i)] = present.Gone[i] || !present.Up[i]
		price, known := d.config.Price(offering)
		if !known {
			return Undecided
		}
		situation.Prices[i] = price * o.shares[i] * g.tick.Hours()
	}
	switch place := o.planner.Choose(state, situation); {
	case place != finish.OnDemand:
		return Spot
	case present.AnyUp() && !o.hasOthers:
		return OnDemand
	default:
		return Any
	}
}
