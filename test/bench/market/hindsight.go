package main

import (
	"math"
	"math/rand/v2"
	"time"

	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

// thresholds is a policy of a few numbers. They are chosen in hindsight: those with which the jobs that are measured would have cost least. So nobody can
// follow it; it shows how much of the gap a policy of this form can close at best. Like ours it sees the zones at each look, estimates by the past how
// long they will last, and stays on spot until that is lost.
type thresholds struct {
	numbers
	job   job
	looks looks
	start int
	experience
}

// numbers are in ticks.
type numbers struct {
	// waits is the slack with which an outage is waited for, returns the one with which on-demand is left for a zone that lasts for returnLife.
	waits, returns line
	returnLife     float64
	// hurries is the slack below which a zone that does not last for hurryLife is not worth a try.
	hurries   line
	hurryLife float64
	// idles is the slack above which nothing is bought until a zone lasts for idleLife.
	idles    line
	idleLife float64
	// lossWeight is how much the restart after a loss counts beside the price of a zone.
	lossWeight float64
}

// line is a slack: so many ticks, and such a part of the work that is left.
type line struct{ ticks, part float64 }

func (l line) at(left int) float64 { return l.ticks + l.part*float64(left) }

func (t *thresholds) decide(p progress, _ sight) int {
	now := t.start + p.elapsed
	t.note(p.on, t.looks.before(now))
	t.last = t.choose(p, t.looks.all[t.looked])
	return t.last
}

func (t *thresholds) choose(p progress, seen seen) int {
	slack := float64(p.slack(t.job) - p.warmUp)
	switch {
	case p.on >= 0:
		return p.on
	case p.slack(t.job) < restarts*t.job.restart: // as ours
		return onDemand
	}
	zone := t.best(seen)
	switch {
	case p.on == onDemand:
		if zone >= 0 && slack >= t.returns.at(p.left) && slack >= float64(restarts*t.job.restart) && seen.life[zone] >= t.returnLife {
			return zone
		}
		return onDemand
	case zone < 0 && slack < t.waits.at(p.left):
		return onDemand
	case zone < 0, slack >= t.idles.at(p.left) && seen.life[zone] < t.idleLife:
		return idle
	case slack < t.hurries.at(p.left) && seen.life[zone] < t.hurryLife:
		return onDemand
	}
	return zone
}

// best returns the zone that costs least with its losses, idle if none is up.
func (t *thresholds) best(seen seen) int {
	best, least := idle, math.Inf(1)
	for zone, up := range seen.up {
		if !up || t.gone[finish.Place(zone)] {
			continue
		}
		if cost := seen.price[zone] * (1 + t.lossWeight*float64(t.job.restart)/max(1, seen.life[zone])); cost < least {
			best, least = zone, cost
		}
	}
	return best
}

// seen is the market at a look, with how long each zone that is up is expected to last, in ticks.
type seen struct {
	sight
	life []float64
}

// looks are those until the end of the trace, from one tick on.
type looks struct {
	from, every int
	all         []seen
}

func (l looks) before(tick int) int { return (tick - l.from) / l.every }

// looksOf looks at the market as ours does, and learns its hazards every day.
func looksOf(s *sighted, from int) looks {
	const lives = 15
	l := looks{from: from - from%s.poll, every: s.poll}
	var hazard *market.Hazard
	var learnt time.Time
	for tick := l.from; tick < s.trace.ticks(); tick += l.every {
		now, zones := s.time(tick), len(s.trace.zones)
		if hazard == nil || now.Sub(learnt) >= 24*time.Hour {
			hazard, learnt = s.history.Fit(s.time(s.fit.from), now), now
		}
		at := seen{sight: sight{make([]bool, zones), make([]float64, zones)}, life: make([]float64, zones)}
		for zone := range zones {
			at.up[zone], at.price[zone] = s.history.At(zone, now)
			if at.up[zone] {
				for _, life := range hazard.Lives(s.history, zone, now, lives) {
					at.life[zone] += min(float64(life)/float64(s.tick), float64(s.job.work)) / lives
				}
			}
		}
		l.all = append(l.all, at)
	}
	return l
}

// inHindsight returns what the jobs cost in the mean by the best of so many draws of numbers. The first third are drawn anywhere, the others near the
// best so far.
func inHindsight(s *sighted, j job, starts []int, draws int) float64 {
	seen, random := looksOf(s, starts[0]), rand.New(rand.NewPCG(1, 7))
	best, least := numbers{}, math.Inf(1)
	for draw := range draws {
		tried := drawn(random, j)
		if draw > draws/3 {
			tried = best.varied(random, j)
		}
		sum := 0.0
		for _, start := range starts {
			p := &thresholds{numbers: tried, job: j, looks: seen, start: start, experience: newExperience()}
			sum += run(s.trace, start, j, p).perUsefulHour(j)
		}
		if sum < least {
			best, least = tried, sum
		}
	}
	return least / float64(len(starts))
}

// choice is one of the numbers, and where it lies.
type choice struct {
	number      *float64
	least, most float64
}

func (n *numbers) choices(j job) []choice {
	restart := float64(j.restart)
	return []choice{
		{&n.waits.ticks, restart, 20 * restart}, {&n.waits.part, -.05, .35},
		{&n.returns.ticks, 2 * restart, 25 * restart}, {&n.returns.part, -.05, .35}, {&n.returnLife, 0, 30 * restart},
		{&n.hurries.ticks, 2 * restart, 15 * restart}, {&n.hurries.part, -.05, .35}, {&n.hurryLife, 0, 20 * restart},
		{&n.idles.ticks, 2 * restart, 50 * restart}, {&n.idles.part, 0, .6}, {&n.idleLife, 0, 20 * restart},
		{&n.lossWeight, 0, 3},
	}
}

// drawn returns numbers of which each is as likely as the others.
func drawn(random *rand.Rand, j job) (n numbers) {
	for _, c := range n.choices(j) {
		*c.number = c.least + random.Float64()*(c.most-c.least)
	}
	return n
}

// varied returns the numbers with about a third of them changed.
func (n numbers) varied(random *rand.Rand, j job) numbers {
	for _, c := range n.choices(j) {
		if random.Float64() < .3 {
			*c.number = min(c.most, max(c.least, *c.number+random.NormFloat64()*.2*(c.most-c.least)))
		}
	}
	return n
}
