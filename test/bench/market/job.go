package main

import "math"

// What a job runs on: a zone by its index, or one of these.
const (
	idle     = -1
	onDemand = -2
)

// job is a training that has to be over in time. All times are in ticks.
type job struct {
	// work is useful time, on one instance.
	work int
	// restart is how long each new instance takes before it does useful work. It is paid for.
	restart int
	// deadline is counted from the start, the first warm-up included.
	deadline int
	// protected is for how long an instance that was bought as spot is not reclaimed.
	protected int
	// onDemandPrice is per hour.
	onDemandPrice float64
}

// newJob returns a job of so much work, whose deadline is slack times that.
func newJob(work, restart, protected int, slack, onDemandPrice float64) job {
	return job{
		work: work, restart: restart, deadline: int(math.Round(float64(work) * slack)), protected: protected, onDemandPrice: onDemandPrice,
	}
}

// progress is where a job stands at the start of a tick.
type progress struct {
	// elapsed are the ticks since the start, left is the useful work that is left.
	elapsed, left int
	// on is what the job runs on, warmUp is how long that will take before it does useful work.
	on, warmUp int
	// age is for how long it has run on that.
	age int
}

// slack is how long the job could be idle and still be over in time on one instance that never has to warm up.
func (p progress) slack(j job) int { return j.deadline - p.elapsed - p.left }

// mustBuyOnDemand says whether only an on-demand instance that is bought now has the job over in time for sure.
func (p progress) mustBuyOnDemand(j job) bool { return p.slack(j) <= j.restart }

// sight is what a policy knows of the zones at a tick.
type sight struct {
	up    []bool
	price []float64
}

// cheapest returns the zone that is up and costs least; false if none is up.
func (s sight) cheapest() (zone int, found bool) {
	for z, up := range s.up {
		if up && (!found || s.price[z] < s.price[zone]) {
			zone, found = z, true
		}
	}
	return zone, found
}

// policy decides what a job runs on in the next tick. A policy is used for one run of a job.
type policy interface {
	decide(p progress, seen sight) int
}

// outcome is a run of a job.
type outcome struct {
	// cost is the sum of the hourly prices over all ticks.
	cost float64
	// ticks is how long the job took.
	ticks int
	// lost counts instances that were reclaimed.
	lost int
}

func (o outcome) missed(j job) bool { return o.ticks > j.deadline }

// perUsefulHour is the price of an hour of useful work.
func (o outcome) perUsefulHour(j job) float64 { return o.cost / float64(j.work) }

// stretch is how long the job took, in multiples of its work.
func (o outcome) stretch(j job) float64 { return float64(o.ticks) / float64(j.work) }

// run runs the job from the start on, a tick of the trace. The policy is shown the zones as they are. A reclaimed instance is lost at the
// start of a tick, and the policy decides anew in the same one. A purchase that is refused takes the tick; a job that was on-demand works on in it, since
// the autoscaler buys spot before it moves a job. What is not over when the trace ends goes on on-demand.
func run(t *trace, start int, j job, p policy) outcome {
	var o outcome
	at := progress{left: j.work, on: idle}
	for ; at.left > 0; at.elapsed++ {
		tick := start + at.elapsed
		if tick >= t.ticks() {
			o.cost += float64(at.left+at.warmUp) * j.onDemandPrice
			at.elapsed += at.left + at.warmUp
			break
		}
		if at.on >= 0 && !t.up[at.on][tick] && at.age >= j.protected {
			at.on = idle
			o.lost++
		}
		switch choice := p.decide(at, t.sight(tick)); {
		case choice == at.on:
		case choice < 0 || t.up[choice][tick]:
			at.on, at.age, at.warmUp = choice, 0, j.restart
		case at.on != onDemand:
			at.on, at.warmUp = idle, 0
		}
		o.cost += at.pay(t, tick, j)
	}
	o.ticks = at.elapsed
	return o
}

// pay has the job run for a tick, and returns the price per hour.
func (p *progress) pay(t *trace, tick int, j job) float64 {
	if p.on == idle {
		return 0
	}
	p.age++
	if p.warmUp > 0 {
		p.warmUp--
	} else {
		p.left--
	}
	if p.on == onDemand {
		return j.onDemandPrice
	}
	return t.price[p.on][tick]
}
