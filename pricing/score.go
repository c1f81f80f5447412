package pricing

import "time"

// Reliability is how long an instance of an offering is kept, and how often a purchase of it is refused.
type Reliability struct {
	// Life is how long a new instance is kept on average; 0 for one that is not reclaimed.
	Life time.Duration
	// Refusal is the probability that there is none to buy, from 0 to less than 1.
	Refusal float64
}

// Terms are what time is worth.
type Terms struct {
	// Restart is how much useful time a job loses each time it loses its instance: until the next one is there, with what it has to do again.
	Restart time.Duration
	// ValueOfTime is what an hour is worth by which a job is over sooner. If it is 0, that is the on-demand price: what it would
	// cost not to wait.
	ValueOfTime float64
}

const (
	// refusalDelay is how long it is taken to take until it is known that there was nothing to buy, at the end of the scaling activity, and
	// something else is bought. How long activities take is not documented.
	refusalDelay = 2 * time.Minute
	// worthSpot is up to which part of the on-demand price a spot instance is worth its risk: beyond, a saving of a few percent is lost
	// again with the first reclaim.
	worthSpot = .9
	// notWorthSpot is by how much dearer than on-demand a spot instance counts that is not.
	notWorthSpot = 1.001
)

// UsefulCost returns what an hour of useful work costs on a spot offering of that price, and never less than the price. It is the one formula by
// which offerings are compared; docs/pricing.md has an example.
//
// An instance is paid for as long as it is kept, and is of use for that time less a restart. The job is over later by that restart, and by the time
// in which its purchases were refused:
//
//	(price × life + value of time × (restart + delay × refusal / (1 − refusal))) / (life − restart)
//
// A spot instance that saves less than a tenth of the on-demand price counts as a little dearer than on-demand, which is 0 if it is not known.
func UsefulCost(price, onDemand float64, r Reliability, t Terms) float64 {
	if r.Life <= 0 || price <= 0 {
		return price
	}
	value := t.ValueOfTime
	if value == 0 {
		value = max(onDemand, price)
	}
	life := t.worthwhile(r.Life)
	waits := refusalDelay.Hours() * r.Refusal / (1 - r.Refusal)
	cost := (price*life.Hours() + value*(t.Restart.Hours()+waits)) / (life - t.Restart).Hours()
	if onDemand > 0 && price >= worthSpot*onDemand {
		cost = max(cost, notWorthSpot*onDemand)
	}
	return cost
}

// With returns the terms with that value of time, which is the same as theirs for nil.
func (t Terms) With(valueOfTime *float64) Terms {
	if valueOfTime != nil {
		t.ValueOfTime = *valueOfTime
	}
	return t
}

// worthwhile returns the life of an instance as it counts: nobody would begin for less than twice a restart.
func (t Terms) worthwhile(life time.Duration) time.Duration { return max(life, 2*t.Restart) }

// CostToFinish returns what is expected to be paid for an instance of that price until so much useful work is done on it and on those that follow
// it. Its life is how long it is of use until it, or one that the job cannot do without, is lost; 0 for never.
//
// Unlike UsefulCost it has no value of time: this is money that is paid.
func CostToFinish(price float64, life, work time.Duration, t Terms) float64 {
	if life <= 0 {
		return price * work.Hours()
	}
	life = t.worthwhile(life)
	return price * work.Hours() * life.Hours() / (life - t.Restart).Hours()
}
