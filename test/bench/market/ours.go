package main

import (
	"math"
	"time"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

// ours is the policy of this project, for one run of a job from the start on. Between two looks it knows only of its own losses and refusals.
type ours struct {
	market  *sighted
	history *market.History
	planner func(tick int, grid deadline.Grid) *finish.Planner
	job     job
	start   int
	experience
	// darkSince is the tick since which no zone has been up.
	darkSince int
	dark      bool
}

// experience is what a job has seen of the zones since the last look.
type experience struct {
	// last is what the job chose last, looked which look was the last, and gone which zones it has lost or was refused since.
	last, looked int
	gone         map[finish.Place]bool
}

func newExperience() experience { return experience{last: idle, looked: -1} }

// note notes that the job is on that place now, at a look or after it. What it chose and is not on was lost or refused.
func (e *experience) note(on, look int) {
	if look != e.looked {
		e.looked, e.gone = look, map[finish.Place]bool{}
	}
	if e.last >= 0 && on < 0 {
		e.gone[finish.Place(e.last)] = true
	}
}

func (o *ours) decide(p progress, _ sight) int {
	now := o.start + p.elapsed
	o.note(p.on, now-now%o.lookEvery())
	outage := time.Duration(o.outage(now)) * o.market.tick
	grid, state := o.stand(p)
	planner := o.planner(now, grid)
	switch slack := p.slack(o.job); {
	case planner == nil || o.market.isBlind(now):
		o.last = o.untaught(p, now)
	case p.on >= 0:
		o.last = p.on
	case slack < restarts*o.job.restart: // as in spotfirst.Policy
		o.last = onDemand
	default:
		o.last = int(planner.Choose(state, finish.Situation{Now: o.market.time(now), Gone: o.gone, Outage: outage, Patient: true}))
	}
	return o.last
}

// restarts are how many restarts a job must have time for to be left on spot, as in package spotfirst.
const restarts = 2

// stand returns by which tables the job is decided, and where it stands on them.
func (o *ours) stand(p progress) (deadline.Grid, finish.State) {
	tick := o.market.tick
	grid, state := deadline.GridOf(deadline.Job{
		Work: time.Duration(p.left) * tick, Whole: time.Duration(o.job.work) * tick, Slack: time.Duration(max(0, p.slack(o.job))) * tick, ValueOfTime: o.market.worth,
	}, time.Duration(o.job.restart)*tick)
	state.On, state.WarmUp = finish.Place(p.on), int(math.Ceil(float64(p.warmUp)*float64(tick)/float64(grid.Tick())))
	return grid, state
}

// blindLook is after how many ticks a job that sees nothing but its own refusals tries again what was refused.
const blindLook = 9

func (o *ours) lookEvery() int {
	if o.market.knows == probes {
		return blindLook
	}
	return o.market.poll
}

// outage returns for how many ticks nothing has been known to be up.
func (o *ours) outage(now int) int {
	for zone := range o.market.trace.zones {
		if up, _ := o.history.At(zone, o.market.time(now)); up && !o.gone[finish.Place(zone)] {
			o.dark = false
			return 0
		}
	}
	if !o.dark {
		o.dark, o.darkSince = true, now
	}
	return now - o.darkSince
}

// untaught decides where too little is known, as the autoscaler does: by a deadline.Guess.
func (o *ours) untaught(p progress, now int) int {
	tick := o.market.tick
	guess := deadline.Guess{Zones: len(o.market.trace.zones), Restart: time.Duration(o.job.restart) * tick}
	left, slack := time.Duration(p.left)*tick, time.Duration(p.slack(o.job)-p.warmUp)*tick
	switch {
	case p.on == onDemand && p.slack(o.job)-p.warmUp < o.job.restart, p.on != onDemand && p.mustBuyOnDemand(o.job):
		return onDemand
	case p.on >= 0:
		return p.on
	case p.on == onDemand && !guess.Leaves(left, slack), p.slack(o.job) < restarts*o.job.restart: // as in spotfirst.Policy
		return onDemand
	}
	seen := o.seen(now)
	if p.on == onDemand {
		return o.move(p, seen, left)
	}
	if !guess.Waits(left, slack) {
		return takeCheapest(seen, onDemand)
	}
	return takeCheapest(seen, idle)
}

// move returns the zone that a job moves to which runs on demand, if that pays.
func (o *ours) move(p progress, seen sight, left time.Duration) int {
	zone, found := seen.cheapest()
	if !found {
		return onDemand
	}
	move := pricing.Move{OnDemand: o.job.onDemandPrice, Useful: seen.price[zone], Instances: 1, GoesOn: min(time.Duration(p.age)*o.market.tick, left)}
	if !move.Pays(pricing.Terms{Restart: time.Duration(o.job.restart) * o.market.tick}) {
		return onDemand
	}
	return zone
}

// seen returns the zones as they were seen last, and those that were lost or refused since as down.
func (o *ours) seen(now int) (s sight) {
	for zone := range o.market.trace.zones {
		up, price := o.history.At(zone, o.market.time(now))
		s.up, s.price = append(s.up, up && !o.gone[finish.Place(zone)]), append(s.price, price)
	}
	return s
}
