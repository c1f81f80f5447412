package deadline

import (
	"time"

	"gpu-spot-autoscaler/pricing/finish"
)

const (
	// shortTick is the length of a tick. It is two or three times as long for long jobs, up to longTick.
	shortTick, longTick = 10 * time.Minute, 30 * time.Minute
	// mostWork and mostSlack bound the tables, in ticks.
	mostWork, mostSlack = 288, 96
	// leastSize is the least work and slack of a table.
	leastSize = 12
)

// grid says for which jobs tables are: those of about the same length, slack and value of time. Numbers without a unit are ticks.
type grid struct {
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
func (g grid) stated() *float64 {
	switch g.valueOfTime {
	case 0:
		return nil
	case worthOnDemand:
		return new(float64)
	}
	return &g.valueOfTime
}

// worth returns what a tick is worth to a pod that takes such a part of an on-demand instance of that price per hour.
func (g grid) worth(share, price float64) float64 {
	value := min(g.valueOfTime, mostWorth*price)
	if g.valueOfTime == worthOnDemand {
		value = price
	}
	return value * share * g.tick.Hours()
}

// gridOf returns the grid for a job, and where on it the job stands. What does not fit is on the safe side: work is rounded up, slack down.
// Of a job that is too long for the tables the next days count, with their part of the slack.
func gridOf(job Job, restart time.Duration) (grid, finish.State) {
	work, slack := job.Work, job.Slack
	tick := min(shortTick*time.Duration(max(1, ceil(work, mostWork*shortTick))), longTick)
	state := finish.State{Work: ceil(work, tick), Slack: int(slack / tick), On: finish.Nothing}
	if state.Work > mostWork {
		state.Slack = state.Slack * mostWork / state.Work
		state.Work = mostWork
	}
	state.Slack = min(state.Slack, mostSlack)
	return grid{
		tick: tick, restart: max(1, ceil(restart, tick)),
		work: min(sizeFor(state.Work), mostWork), slack: min(sizeFor(state.Slack), mostSlack), valueOfTime: valueFor(job.ValueOfTime),
	}, state
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
