package main

// greedy takes the cheapest zone that is up and stays until it is reclaimed. It waits where none is up, and goes on-demand, for good,
// when nothing else has it over in time for sure.
type greedy struct{ job job }

func (g greedy) decide(p progress, seen sight) int {
	switch {
	case p.on == onDemand || p.mustBuyOnDemand(g.job):
		return onDemand
	case p.on >= 0:
		return p.on
	}
	return takeCheapest(seen, idle)
}

// takeCheapest returns the cheapest zone that is up, or otherwise what is given.
func takeCheapest(seen sight, otherwise int) int {
	if zone, found := seen.cheapest(); found {
		return zone
	}
	return otherwise
}

// uniformProgress keeps the job on the straight line from nothing at the start to all of its work at the deadline: where no zone is up it
// goes on-demand if it is behind that line, and else waits. It takes spot when there is some, and stays until it is reclaimed. From
// on-demand it returns to spot, or waits, when it is so far ahead that two warm-ups leave it ahead. A spot instance
// is kept until two ticks before the job would be late on it, also where only on-demand has it over in time for sure: what is reclaimed
// there may miss its deadline. With that margin it costs what was measured of it before.
// Source: Uniform Progress of Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024, section 4.
type uniformProgress struct{ job job }

func (u uniformProgress) decide(p progress, seen sight) int {
	const hysteresis = 2 // warm-ups
	const margin = 2     // ticks
	isLast := u.job.deadline-p.elapsed <= p.left+p.warmUp+margin
	switch {
	case p.mustBuyOnDemand(u.job) && (p.on < 0 || isLast):
		return onDemand
	case p.on >= 0:
		return p.on
	case p.on == onDemand && u.isBehind(p, p.elapsed+hysteresis*u.job.restart):
		return onDemand
	case p.on != onDemand && u.isBehind(p, p.elapsed):
		return takeCheapest(seen, onDemand)
	}
	return takeCheapest(seen, idle)
}

// isBehind says whether less work is done than is due after so many ticks.
func (u uniformProgress) isBehind(p progress, ticks int) bool {
	return (u.job.work-p.left)*u.job.deadline < u.job.work*ticks
}

// onDemandOnly never takes spot.
type onDemandOnly struct{}

func (onDemandOnly) decide(progress, sight) int { return onDemand }
