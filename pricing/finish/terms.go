package finish

import (
	"sort"
)

// Terms are what holds for a job all the time. Times are in ticks, prices per tick.
type Terms struct {
	// Work is the useful work of the whole job, Slack by how much longer it has until its deadline. Both may be more, as far as the tables are to
	// serve other jobs, too.
	Work, Slack int
	// Restart is how long a new instance takes before it does useful work. It is at least 1.
	Restart int
	// Protected is for how long a new spot instance is not reclaimed.
	Protected int
	// OnDemand is the price of an on-demand instance, which is never reclaimed. Inside a planner it is with the value of the time.
	OnDemand float64
	// ValueOfTime is what it is worth per tick that the job is over sooner.
	ValueOfTime float64
}

// Place is what a job runs on: an offering by its index, or one of these.
type Place int

const (
	// Nothing is to wait.
	Nothing Place = -1 - iota
	// OnDemand is an on-demand instance.
	OnDemand
)

// State is where a job stands.
type State struct {
	// Work is the useful work that is left, at least 1. Slack is by how much longer the time is that is left.
	Work, Slack int
	// Whole is all of the useful work of the job, done or not; that of the terms if it is 0.
	Whole int
	// On is what the job has: Nothing or OnDemand. A job on spot stays there until that is lost.
	On Place
	// WarmUp is how long the on-demand instance that it has will take before it does useful work.
	WarmUp int
}

// slackBeforeRestart returns the slack that is left for a restart if the job stays on what it has for another tick. On-demand is never lost.
func (s State) slackBeforeRestart() int {
	if s.On == OnDemand {
		return s.Slack - s.WarmUp
	}
	return s.Slack - 1
}

// offer is an offering that can be bought.
type offer struct {
	place Place
	// price is with the value of the time.
	price float64
	// age is for how long the offering has been up at most, infinity if that is not known.
	age float64
	// lives are equally probable times, ascending, for which an instance is kept. So much of them has passed, and so much is protected.
	lives             []float64
	passed, protected float64
}

// life returns for how long an instance is kept from now on, in one of the equally probable cases.
func (o offer) life(i int) float64 { return max(o.lives[i]-o.passed, o.protected) }

// withProtection returns the offer whose instance is not lost for so many ticks.
func (o offer) withProtection(ticks int) offer {
	o.protected = float64(max(0, ticks))
	return o
}

// after returns the offer as it is after so many ticks, if it is not lost by then, and how probable that is.
func (o offer) after(ticks float64) (later offer, kept float64) {
	later = o
	later.passed += ticks
	later.lives = o.lives[sort.Search(len(o.lives), func(i int) bool { return o.lives[i] > later.passed }):]
	return later, float64(len(later.lives)) / float64(len(o.lives))
}

// scene is the market at one time.
type scene struct {
	offers []offer
	// outages are equally probable times until there are offers again, ascending, if there are none.
	outages []float64
}

// lateCost is what a tick is worth by which a job may be late, in ticks of on-demand: no money makes up for it.
const lateCost = 1000

// withTime returns what a tick costs on an instance of that price: a job that runs takes time, too.
func (t Terms) withTime(price float64) float64 { return price + t.ValueOfTime }

// atOnce returns what it costs to finish on a new on-demand instance, bought now.
func (t Terms) atOnce(work, slack float64) float64 {
	restart := float64(t.Restart)
	return t.OnDemand * (work + restart + lateCost*max(0, restart-slack))
}

// isLoose returns whether the job has much slack.
func (t Terms) isLoose(s State) bool {
	whole := s.Whole
	if whole == 0 {
		whole = t.Work
	}
	return float64(s.Slack) >= looseSlack*float64(whole) && s.Slack >= fewRestarts*t.Restart
}

// allowsSpot returns whether there is time for on-demand even if a new spot instance is lost at the end of its warm-up.
func (t Terms) allowsSpot(slack float64) bool { return slack >= float64(2*t.Restart) }
