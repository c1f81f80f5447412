package finish

// Rules for a market of which too little is known. Package deadline makes a planner only of a past that is long enough, asks it only of
// a present that is not stale, and leaves all else to the autoscaler's own choice.
const (
	// looseDeadline is from which multiple of its work on a job may wait for offers: in most sets of zones of the recorded market,
	// going on-demand to keep up with a straight line is cheaper below, and waiting above.
	looseDeadline = 1.25
	// ahead is by how many restarts a job has to be ahead of the straight line to leave on-demand.
	ahead = 2
)

// withoutPast returns what the job is to run on, by the price alone: the cheapest offering that is up, until it is lost. Without any, a job
// whose deadline is tight goes on-demand once it is behind a straight line from its start to its deadline, and back when it is well ahead
// (Uniform Progress of Wu et al., section 4); others wait.
func (p *Planner) withoutPast(s State, now Situation) Place {
	t := p.view.terms
	deadline := t.Work + t.Slack
	elapsed, tight := deadline-s.Work-s.Slack, float64(deadline) < looseDeadline*float64(t.Work)
	isBehind := func(at int) bool { return (t.Work-s.Work)*deadline < t.Work*at }
	switch {
	case s.On >= 0, s.On == OnDemand && (!tight || isBehind(elapsed+ahead*t.Restart)):
		return s.On
	}
	if !t.allowsSpot(float64(s.Slack)) {
		return OnDemand
	}
	if place, found := p.cheapest(now); found {
		return place
	}
	if tight && s.On == Nothing && isBehind(elapsed) {
		return OnDemand
	}
	return Nothing
}

// cheapest returns the offering of the least price that is up.
func (p *Planner) cheapest(now Situation) (best Place, found bool) {
	least := 0.
	for offering := range p.view.history.Len() {
		up, price := p.view.history.At(offering, now.Now)
		if place := Place(offering); up && !now.Gone[place] && (!found || price < least) {
			best, least, found = place, price, true
		}
	}
	return best, found
}
