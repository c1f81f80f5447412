package finish

import (
	"math"
	"slices"
	"time"

	"gpu-spot-autoscaler/pricing/market"
)

const (
	// lifeCount is how many lives an offer has.
	lifeCount = 15
	// sceneCount bounds how many scenes of each kind a table is computed from, and outageCount how many outages a scene has.
	sceneCount, outageCount = 120, 15
	// shortestLife is that of an instance that is lost at once, in ticks: what is refused takes time, too.
	shortestLife = .25
	// firstSeen is how much of the past has to be known before scenes are made of it, in ticks.
	firstSeen = 200
)

// classCounts are with how many classes of offers the market is taken to move.
var classCounts = []int{2, 3}

// model is what was learnt of the market from a part of the past. It is safe for concurrent use.
type model struct {
	*view
	hazard *market.Hazard
	scenes *sceneTable
	chains []classedTable
	// outages are how long there were no offers each time, ascending.
	outages []float64
}

type classedTable struct {
	classes
	*chainTable
}

// view is how the past is seen.
type view struct {
	history *market.History
	terms   Terms
	// tick is its length, and poll how often the market was looked at.
	tick, poll time.Duration
	// noise is how much of what is seen is wrong. Where that matters, nobody knows for how long an offering has been up.
	noise market.Noise
}

func (v *view) ticks(d time.Duration) float64 { return float64(d) / float64(v.tick) }

// learn learns from what was seen from one time to the other.
func (v *view) learn(from, to time.Time) *model {
	m := &model{view: v, hazard: v.history.Fit(from, to)}
	m.outages = v.outagesIn(from, to)
	seen := m.lookBack(from, to)
	m.scenes = newSceneTable(v.terms, thin(seen.losses, sceneCount), thin(seen.returns, sceneCount))
	m.addChains(seen.glimpses)
	return m
}

// past is what a job would have seen that takes the best offer until that is lost: the market at each time, and the scenes in which it lost an
// instance, or offers came back.
type past struct {
	glimpses        []glimpse
	losses, returns []scene
}

// lookBack returns the past from one time to the other, without the times in which nobody looked.
func (m *model) lookBack(from, to time.Time) (seen past) {
	on, outage, gap := Nothing, time.Duration(0), false
	for at := from.Add(firstSeen * m.tick); at.Before(to); at = at.Add(m.poll) {
		if !m.history.IsSeen(at) {
			on, outage, gap = Nothing, 0, true
			continue
		}
		s := m.sceneAt(Situation{Now: at})
		g := m.glimpseOf(s, m.ticks(outage))
		g.afterGap, gap = gap, false
		if on != Nothing {
			up, _ := m.history.At(int(on), at)
			g.kept, g.lost = up, !up
		}
		if g.lost {
			seen.losses = append(seen.losses, m.withOutages(s, 0))
			on = Nothing
		}
		if outage > 0 && len(s.offers) > 0 {
			seen.returns = append(seen.returns, s)
		}
		outage += m.poll
		if len(s.offers) > 0 {
			outage = 0
		}
		if on == Nothing {
			on = g.best
		}
		seen.glimpses = append(seen.glimpses, g)
	}
	return seen
}

func (m *model) addChains(glimpses []glimpse) {
	var costs []float64
	for _, g := range glimpses {
		if g.best != Nothing {
			costs = append(costs, g.cost)
		}
	}
	slices.Sort(costs)
	for _, count := range classCounts {
		c := newClasses(count, costs)
		m.chains = append(m.chains, classedTable{c, newChainTable(m.terms, c.chainOf(glimpses, m.ticks(m.poll)))})
	}
}

// outagesIn returns how long there were no offers each time.
func (v *view) outagesIn(from, to time.Time) (outages []float64) {
	var since time.Time
	for at := from; at.Before(to); at = at.Add(v.poll) {
		switch up := v.isAnyUp(at); {
		case !v.history.IsSeen(at):
			since = time.Time{} // nobody knows when it ended
		case !up && since.IsZero():
			since = at
		case up && !since.IsZero():
			outages = append(outages, v.ticks(at.Sub(since)))
			since = time.Time{}
		}
	}
	slices.Sort(outages)
	return outages
}

func (v *view) isAnyUp(at time.Time) bool {
	for offering := range v.history.Len() {
		if up, _ := v.history.At(offering, at); up {
			return true
		}
	}
	return false
}

// sceneAt returns the offers as they were seen last, without those that are known to be gone since.
func (m *model) sceneAt(now Situation) (s scene) {
	for offering := range m.history.Len() {
		place := Place(offering)
		if up, price := m.history.At(offering, now.Now); up && !now.Gone[place] {
			s.offers = append(s.offers, m.offerAt(place, now.price(place, price), now.Now))
		}
	}
	return s
}

func (m *model) offerAt(place Place, price float64, at time.Time) offer {
	o := offer{place: place, price: m.terms.withTime(price), age: math.Inf(1)}
	if ago, known := m.history.SinceDown(int(place), at); known {
		o.age = m.ticks(ago)
	}
	for _, life := range m.hazard.Lives(m.history, int(place), at, lifeCount) {
		o.lives = append(o.lives, max(shortestLife, m.ticks(life)))
	}
	return o
}

// withOutages adds to a scene without offers how much longer there will be none, if there have been none for so long.
func (m *model) withOutages(s scene, elapsed float64) scene {
	if len(s.offers) > 0 {
		return s
	}
	for _, outage := range m.outages {
		if outage > elapsed {
			s.outages = append(s.outages, outage-elapsed)
		}
	}
	if len(s.outages) == 0 {
		s.outages = []float64{max(elapsed, m.ticks(m.poll))} // none lasted so long
	}
	s.outages = thin(s.outages, outageCount)
	return s
}

// thin returns so many of the items at most, evenly spread.
func thin[T any](items []T, count int) []T {
	if len(items) <= count {
		return items
	}
	few := make([]T, count)
	for i := range few {
		few[i] = items[(2*i+1)*len(items)/(2*count)]
	}
	return few
}

// glimpseOf returns what a chain sees of the scene.
func (m *model) glimpseOf(s scene, outage float64) glimpse {
	g := glimpse{best: Nothing, cost: math.Inf(1), outage: outage}
	for _, o := range s.offers {
		if cost := m.usefulCost(o); cost < g.cost {
			g.best, g.cost, g.price = o.place, cost, o.price
		}
	}
	return g
}

// usefulCost returns what a tick of useful work costs on the offer, with the restart that its loss costs.
func (m *model) usefulCost(o offer) float64 {
	life := 0.0
	o = o.withProtection(m.terms.Protected)
	for i := range o.lives {
		life += o.life(i) / float64(len(o.lives))
	}
	restart := float64(m.terms.Restart)
	life = min(life, float64(m.terms.Work))
	return o.price * max(life, restart+1) / max(life-restart, 1)
}
