package deadline

import (
	"math"
	"time"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

// outlook is what a plan knows at a time. It does not change.
type outlook struct {
	// planner is nil if too little was seen.
	planner *finish.Planner
	spot    []pricing.Offering
	// units make hourly prices of instances to those of ticks of what the job takes of them.
	units []float64
	// hasOthers is whether there are offerings, for less than on-demand, of which nothing was seen.
	hasOthers bool
	// learnt and looked are when, and the others how many changes of the market there had been.
	learnt, looked                 time.Time
	changesAtLearning, changesSeen int
}

// isOld returns whether the market may have changed since the outlook looked at it.
func (o *outlook) isOld(now time.Time, changes int) bool {
	return o.changesSeen != changes || now.Sub(o.looked) >= lookEvery
}

// isOutdated returns whether the outlook learnt LearnEvery ago, or the market has changed more since than in all the time before. One that had seen too
// little to learn from is outdated once there is more.
func (o *outlook) isOutdated(now time.Time, changes int) bool {
	if o == nil || o.planner == nil && o.isOld(now, changes) {
		return true
	}
	age := now.Sub(o.learnt)
	return age >= LearnEvery || age >= soonest && changes > 2*o.changesAtLearning
}

// learn learns from all that was seen.
func (d *Desk) learn(p *plan, now time.Time, changes int) *outlook {
	o := &outlook{learnt: now, changesAtLearning: changes}
	price, share, known := d.onDemand(p.offers)
	if !known {
		return o
	}
	offers, hasOthers := d.best(p.offers, price*share, p.grid.stated())
	o.hasOthers = hasOthers
	protected := time.Duration(math.MaxInt64)
	for _, each := range offers {
		o.spot, o.units = append(o.spot, each.Offering), append(o.units, each.Share*p.grid.tick.Hours())
		protected = min(protected, each.Protected)
	}
	history, since := d.config.Memory.History(o.spot, o.units)
	if since.IsZero() {
		return o
	}
	terms := p.grid.Terms(protected, share, price)
	o.planner = finish.NewPlanner(history, terms, p.grid.tick, p.grid.tick, since, now)
	return o
}

// look returns the outlook with the present as it is.
func (d *Desk) look(o *outlook, now time.Time, changes int) *outlook {
	next := *o
	next.looked, next.changesSeen = now, changes
	if o.planner != nil {
		history, _ := d.config.Memory.History(o.spot, o.units)
		next.planner = o.planner.Beside(history)
	}
	return &next
}

// choose returns what may be bought for a job of that state. An idle one may wait for spot to last, unless there are offerings of which nothing was
// seen: one of those may be better.
func (d *Desk) choose(o *outlook, state finish.State, idle bool, now time.Time) Choice {
	present := d.config.Memory.Present(o.spot, now)
	situation, known := d.situation(o, present, now)
	if !known {
		return Undecided
	}
	situation.Patient = idle && !o.hasOthers
	seesSpot := o.planner.SeesSpot(situation)
	switch place := o.planner.Choose(state, situation); {
	case place == finish.Nothing && situation.Patient && seesSpot:
		return Wait
	case place != finish.OnDemand:
		return Spot
	case seesSpot && !o.hasOthers:
		return OnDemand
	default:
		return Any
	}
}

// situation returns the present as a planner sees it, and false if it is not known.
func (d *Desk) situation(o *outlook, present market.Present, now time.Time) (s finish.Situation, known bool) {
	s = finish.Situation{Now: now, Gone: map[finish.Place]bool{}, Outage: present.Outage, Prices: make([]float64, len(o.spot))}
	for i, offering := range o.spot {
		s.Gone[finish.Place(i)] = present.Gone[i] || !present.Up[i]
		price, known := d.config.Price(offering)
		if !known {
			return s, false
		}
		s.Prices[i] = price * o.units[i]
	}
	return s, !present.Stale
}
