package main

import (
	"time"

	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

// ours is the policy of this project, for one run of a job from the start on. Between two looks it knows only of its own losses and refusals.
type ours struct {
	market  *sighted
	history *market.History
	planner func(tick int) *finish.Planner
	job     job
	start   int
	// last is what it chose last, looked the tick of the last look, and gone what has been lost or refused since.
	last, looked int
	gone         map[finish.Place]bool
	// darkSince is the tick since which no zone has been up.
	darkSince int
	dark      bool
}

func (o *ours) decide(p progress, _ sight) int {
	now := o.start + p.elapsed
	if look := now - now%o.lookEvery(); look != o.looked {
		o.looked, o.gone = look, map[finish.Place]bool{}
	}
	if o.last >= 0 && p.on == idle {
		o.gone[finish.Place(o.last)] = true
	}
	state := finish.State{Work: p.left, Slack: p.slack(o.job), On: finish.Place(p.on), WarmUp: p.warmUp, Age: p.age}
	o.last = int(o.planner(now).Choose(state, finish.Situation{
		Now: o.market.time(now), Gone: o.gone, Outage: time.Duration(o.outage(now)) * o.market.tick,
	}))
	return o.last
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
