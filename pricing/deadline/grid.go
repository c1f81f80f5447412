package deadline

import (
	"time"

	"gpu-spot-autoscaler/pricing/finish"
)

const (
	// shortTick is about the length of a tick. It is two or three times as long for long jobs.
	shortTick, mostTimes = 10 * time.Minute, 3
	// leastTick is the least length of a tick.
	leastTick = 5 * time.Minute
	// mostWork and mostSlack bound the tables, in ticks.
	mostWork, mostSlack = 288, 96
	// leastSize is the least work and slack of a table.
	leastSize = 12
)

// Grid says for which jobs tables are: those of about the same length, slack and value of time. It is comparable. Numbers without a unit are ticks.
type Grid struct {
	tick                 time.Duration
	work, slack, restart int
	// valueOfTime is per instance-hour, or worthOnDemand.
	valueOfTime float64
}

const (
	// worthOnDemand is that an hour is worth the on-demand price.
	worthOnDemand = -1
	// mostWorth is how many times the on-demand price an hour is worth at most. In the seven digits of the tables prices would be lost beside more.
	mostWorth = 64
)

// valueFor returns the valueOfTime of the grid for a job that states that one, or none.
func valueFor(stated *float64) float64 {
	switch {
	case stated == nil:
		return 0
	case *stated == 0:
		return worthOnDemand
	}
	return *stated
}

// stated is the reverse of valueFor.
func (g Grid) stated() *float64 {
	switch g.valueOfTime {
	case 0:
		return nil
	case worthOnDemand:
		return new(float64)
	}
	return &g.valueOfTime
}

// worth returns what a tick is worth to a pod that takes such a part of an on-demand instance of that price per hour.
func (g Grid) worth(share, price float64) float64 {
	value := min(g.valueOfTime, mostWorth*price)
	if g.valueOfTime == worthOnDemand {
		value = price
	}
	return value * share * g.tick.Hours()
}

// Terms returns the terms of the tables, for a pod that takes such a part of an on-demand instance of that price per hour.
func (g Grid) Terms(protected time.Duration, share, price float64) finish.Terms {
	return finish.Terms{
		Work: g.work, Slack: g.slack, Restart: g.restart, Protected: int(protected / g.tick),
		OnDemand: price * share * g.tick.Hours(), ValueOfTime: g.worth(share, price),
	}
}

// Tick returns how long a tick is.
func (g Grid) Tick() time.Duration { return g.tick }

// GridOf returns the grid for a job, and where on it the job stands. What does not fit is on the safe side: work is rounded up, slack down.
// Of a job that is too long for the tables the next days count, with their part of the slack.
func GridOf(job Job, restart time.Duration) (Grid, finish.State) {
	tick := tickFor(restart)
	tick *= time.Duration(min(max(1, ceil(job.Work, mostWork*tick)), mostTimes))
	state := finish.State{Work: ceil(job.Work, tick), Slack: int(job.Slack / tick), Whole: ceil(max(job.Work, job.Whole), tick), On: finish.Nothing}
	if state.Work > mostWork {
		state.Slack, state.Whole = state.Slack*mostWork/state.Work, state.Whole*mostWork/state.Work
		state.Work = mostWork
	}
	if state.Slack > mostSlack { // as much of the whole work, so that it is much slack if it was
		state.Slack, state.Whole = mostSlack, state.Whole*mostSlack/state.Slack
	}
	return Grid{
		tick: tick, restart: max(1, ceil(restart, tick)),
		work: min(sizeFor(state.Work), mostWork), slack: min(sizeFor(state.Slack), mostSlack), valueOfTime: valueFor(job.ValueOfTime),
	}, state
}

// tickFor returns the length of a tick, of which a restart takes a whole number: a restart that counts for more makes spot look worse than it is.
func tickFor(restart time.Duration) time.Duration {
	if restart < leastTick {
		return shortTick
	}
	times := max(1, (restart+shortTick/2)/shortTick)
	return (restart + times - 1) / times
}

func ceil(d, unit time.Duration) int { return int((d + unit - 1) / unit) }

// sizeFor returns the size of a table that holds so many ticks. There are few sizes, so that jobs share tables, also while their work and slack
// get less.
func sizeFor(ticks int) int {
	size := leastSize
	for size < ticks {
		size += size / 2
	}
	return size
}
