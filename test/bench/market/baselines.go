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
// on-demand it returns to spot, or waits, when it is so far ahead that two warm-ups leave it ahead. An instance that does useful
// work is kept until the last moment, also where on-demand would be due.
// Source: Uniform Progress of Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024, section 4.
type uniformProgress struct{ job job }

func (u uniformProgress) decide(p progress, seen sight) int {
	const hysteresis = 2 // warm-ups
	left := u.job.deadline - p.elapsed
	if p.mustBuyOnDemand(u.job) && (p.on < 0 || left <= p.left+p.warmUp+1) {
		return onDemand
	}
	switch {
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
