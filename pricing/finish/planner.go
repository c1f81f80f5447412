package finish

import (
	"time"

	"gpu-spot-autoscaler/pricing/market"
)

const (
	// recent is the part of the past that the second model goes by, in addition to one that goes by all of it.
	recent = 10 * 24 * time.Hour
	// leastPast, and at least so many ticks, is how much of the past is needed to learn from. The ticks of package deadline are so long that
	// their number decides.
	leastPast, leastTicks = 2 * 24 * time.Hour, 300
	// sceneWeight is how much the table of scenes counts beside each of the two chains.
	sceneWeight = 2
	// fewRestarts is for how many restarts there is little time.
	fewRestarts = 8
	// looseSlack is the part of the whole work that is much slack. A job that has it buys nothing in an outage, whatever the tables say: how long an
	// outage lasts is hard to tell, and in the recorded market it cost more to go on-demand too early than to wait for too long.
	looseSlack = .2
	// matureAge is the age at which an offering is bought at the latest by a job that waits for it to get older. In the recorded market two of
	// three offerings that come back are lost within the hour (test/bench/market).
	matureAge = 80 * time.Minute
)

// Planner decides for jobs of the same terms by what was seen until it was made. It is safe for concurrent use while nothing is added to
// the history.
type Planner struct {
	view   *view
	models []*model
}

// NewPlanner learns from all of the history until now, which begins at a time and was looked at every poll. The length of a tick is that
// of the terms. The time that it takes grows with the work and the slack: about a second for jobs of days. It returns nil if the history is too
// short to learn from, without the times in which nobody looked.
func NewPlanner(history *market.History, terms Terms, tick, poll time.Duration, since, now time.Time) *Planner {
	if seenIn(history, since, now, poll) < max(leastPast, leastTicks*tick) {
		return nil
	}
	terms.OnDemand = terms.withTime(terms.OnDemand) // from here on, and so are the prices of all offers
	v := &view{noise: history.Noise(now), terms: terms, tick: tick, poll: poll}
	v.history = history.Without(v.noise)
	p := &Planner{view: v, models: []*model{v.learn(since, now)}}
	if from := now.Add(-recent); from.After(since) {
		p.models = append(p.models, v.learn(from, now))
	}
	return p
}

// seenIn returns for how long somebody looked from one time to the other.
func seenIn(history *market.History, from, to time.Time, poll time.Duration) (seen time.Duration) {
	for at := from; at.Before(to); at = at.Add(poll) {
		if history.IsSeen(at) {
			seen += poll
		}
	}
	return min(seen, to.Sub(from))
}

// Beside returns a planner that has learnt the same, and takes the present from another history of the same offerings, of which as much is taken to
// be wrong. Nothing may be added to that while the planner is used.
func (p *Planner) Beside(history *market.History) *Planner {
	v := *p.view
	v.history = history.Without(v.noise)
	other := &Planner{view: &v}
	for _, m := range p.models {
		renewed := *m
		renewed.view = &v
		other.models = append(other.models, &renewed)
	}
	return other
}

// Situation is what a decision is about, beside the state of the job.
type Situation struct {
	Now time.Time
	// Gone are offerings that were seen to be up, but of which an instance was lost or refused since.
	Gone map[Place]bool
	// Outage is for how long no offering has been up.
	Outage time.Duration
	// Prices are what the offerings cost now, per tick, if that is known better than from the history.
	Prices []float64
	// Patient is whether a job with much slack may be left with nothing although there is spot, until that has been up for longer. It must not if
	// others of its pods have an instance, which would be paid for meanwhile.
	Patient bool
}

// price returns what the place costs now, which was so much when it was seen last.
func (s Situation) price(of Place, last float64) float64 {
	if s.Prices == nil {
		return last
	}
	return s.Prices[of]
}

// Choose returns what the job is to run on in the next tick. The caller sees to it that the present is known.
func (p *Planner) Choose(s State, now Situation) Place {
	if s.slackBeforeRestart() < p.view.terms.Restart {
		return OnDemand // another tick, and it may be late
	}
	if p.sitsOut(s, now) {
		return Nothing
	}
	costs := p.costs(s, now)
	best := OnDemand
	for place := range p.view.history.Len() {
		if cost, ok := costs[Place(place)]; ok && cost < costs[best] {
			best = Place(place)
		}
	}
	if cost, ok := costs[Nothing]; ok && cost < costs[best] {
		best = Nothing
	}
	return best
}

// Better returns the offerings on which it costs less to finish than on-demand, for a job that runs there.
func (p *Planner) Better(s State, now Situation) (better []Place) {
	if s.slackBeforeRestart() < p.view.terms.Restart {
		return nil
	}
	costs := p.costs(s, now)
	for place := range p.view.history.Len() {
		if cost, ok := costs[Place(place)]; ok && cost < costs[OnDemand] {
			better = append(better, Place(place))
		}
	}
	return better
}

// SeesSpot returns whether an offering is up, as the planner takes the present to be.
func (p *Planner) SeesSpot(now Situation) bool {
	for place := range p.view.history.Len() {
		if up, _ := p.view.history.At(place, now.Now); up && !now.Gone[Place(place)] {
			return true
		}
	}
	return false
}

// costs returns what it costs to finish on each place, times the weights of all tables.
func (p *Planner) costs(s State, now Situation) map[Place]float64 {
	costs := map[Place]float64{}
	for _, m := range p.models {
		m.addCosts(costs, s, now)
	}
	return costs
}

// sitsOut returns whether the job waits for the end of an outage whatever that costs: it has nothing and much slack, some spot saves more in a tick
// than a tick is worth, and the time that the outage has taken is not worth more than spot can save.
func (p *Planner) sitsOut(s State, now Situation) bool {
	if s.On != Nothing || !p.view.terms.isLoose(s) {
		return false
	}
	if p.SeesSpot(now) {
		return false
	}
	isWorthIt, value := false, p.view.terms.ValueOfTime
	for offering := range p.view.history.Len() {
		_, price := p.view.history.At(offering, now.Now)
		saved := p.view.terms.OnDemand - p.view.terms.withTime(now.price(Place(offering), price))
		isWorthIt = isWorthIt || saved > value && saved*float64(s.Work) > value*p.view.ticks(now.Outage)
	}
	return isWorthIt
}

// addCosts adds what it costs to finish on each place, times the weights of all tables.
func (m *model) addCosts(costs map[Place]float64, s State, now Situation) {
	here := m.withOutages(m.sceneAt(now), m.ticks(now.Outage))
	classOf := m.classOf(here, now)
	for _, o := range here.offers {
		if m.terms.allowsSpot(float64(s.Slack)) {
			costs[o.place] += m.onSpot(o.withProtection(m.terms.Protected), s, classOf)
		}
	}
	costs[OnDemand] += m.onDemand(here, s, classOf)
	switch {
	case s.On != Nothing:
	case len(here.offers) == 0:
		costs[Nothing] += m.wait(here, s, classOf)
	case now.Patient && !m.noise.Matters() && m.terms.isLoose(s):
		costs[Nothing] += m.mature(here, s, classOf)
	}
}

// classOf returns the class that each chain takes the market for.
func (m *model) classOf(here scene, now Situation) (class []int) {
	cost := m.glimpseOf(here, 0).cost
	for _, c := range m.chains {
		class = append(class, c.of(cost, m.ticks(now.Outage)))
	}
	return class
}

// onSpot returns what it costs to finish on a new instance of the offer.
func (m *model) onSpot(o offer, s State, class []int) float64 {
	work, slack := float64(s.Work), float64(s.Slack)
	sum := sceneWeight * m.scenes.spot(o, m.terms.Restart, work, slack)
	for i, c := range m.chains {
		sum += costOfSpot(o, float64(m.terms.Restart), work, slack, c.afterLoss(class[i]))
	}
	return sum
}

// onDemand returns what it costs to finish on on-demand.
func (m *model) onDemand(here scene, s State, class []int) float64 {
	warmUp := m.terms.Restart
	if s.On == OnDemand {
		warmUp = s.WarmUp
	}
	sum := sceneWeight * m.scenes.onDemand(here, warmUp, float64(s.Work), float64(s.Slack))
	for i, c := range m.chains {
		sum += c.onDemandBeside(here.offers, class[i], warmUp, s.Work, s.Slack)
	}
	return sum
}

// wait returns what it costs to finish if nothing runs.
func (m *model) wait(here scene, s State, class []int) float64 {
	sum := sceneWeight * m.scenes.wait(here, float64(s.Work), float64(s.Slack))
	for i, c := range m.chains {
		sum += c.wait(class[i], s.Work, s.Slack)
	}
	return sum
}

// mature returns what it costs to finish if nothing runs until one of the offers has been up for longer.
func (m *model) mature(here scene, s State, class []int) float64 {
	work, slack := float64(s.Work), float64(s.Slack)
	sum := sceneWeight * m.maturing(here.offers, work, slack, m.scenes.afterLoss)
	for i, c := range m.chains {
		sum += m.maturing(here.offers, work, slack, c.afterLoss(class[i]))
	}
	return sum
}

func (v *view) maturing(offers []offer, work, slack float64, afterLoss func(work, slack float64) float64) float64 {
	return v.terms.mature(offers, v.ticks(matureAge), work, slack, afterLoss)
}
