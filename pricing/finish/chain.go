package finish

import "math"

// chain is a market that moves between classes, tick by tick.
type chain struct {
	// up says in which classes there are offers, price what the best of them costs per tick, with the value of the time, and loss how probable it is
	// that an instance is lost in a tick.
	up          []bool
	price, loss []float64
	// next is how probable each class is in the next tick; kept is the same if an instance is kept, and lost if it is lost.
	next, kept, lost [][]float64
}

// chainTable is what it costs to finish in a chain, by the work that is left, the slack and the class. It is safe for concurrent use.
type chainTable struct {
	terms   Terms
	chain   chain
	classes int
	// idle is with nothing, spot and onDemand are with an instance that is warm, and lost is when one is lost in the class.
	idle, spot, onDemand, lost []float32
}

func newChainTable(terms Terms, c chain) *chainTable {
	t := &chainTable{terms: terms, chain: c, classes: len(c.up)}
	size := t.index(terms.Work+1, 0)
	t.idle, t.spot, t.onDemand, t.lost = make([]float32, size), make([]float32, size), make([]float32, size), make([]float32, size)
	for work := 1; work <= terms.Work; work++ {
		for slack := range terms.Slack + 1 {
			t.solve(work, slack)
		}
	}
	return t
}

func (t *chainTable) index(work, slack int) int { return (work*(t.terms.Slack+1) + slack) * t.classes }

// solve computes the values of so much work and slack by those of less work, or of less slack.
func (t *chainTable) solve(work, slack int) {
	at, worked := t.index(work, slack), t.index(work-1, slack)
	for c := range t.classes {
		t.idle[at+c] = float32(t.withNothing(c, work, slack))
	}
	for c := range t.classes {
		t.lost[at+c] = float32(expected(t.chain.lost[c], t.idle[at:]))
	}
	for c := range t.classes {
		stay := t.terms.OnDemand + expected(t.chain.next[c], t.onDemand[worked:])
		t.onDemand[at+c] = min(float32(stay), t.idle[at+c])
		t.spot[at+c] = t.idle[at+c]
		if loss := t.chain.loss[c]; t.chain.up[c] {
			stay := t.chain.price[c] + (1-loss)*expected(t.chain.kept[c], t.spot[worked:]) + loss*float64(t.lost[worked+c])
			t.spot[at+c] = min(float32(stay), t.spot[at+c])
		}
	}
}

// expected returns the mean of the values of all classes.
func expected(probability []float64, values []float32) (sum float64) {
	for i, p := range probability {
		sum += p * float64(values[i])
	}
	return sum
}

func (t *chainTable) withNothing(c, work, slack int) float64 {
	least := t.terms.atOnce(float64(work), float64(slack))
	if slack <= t.terms.Restart {
		return least
	}
	least = min(least, t.terms.ValueOfTime+expected(t.chain.next[c], t.idle[t.index(work, slack-1):]))
	warm := t.index(work, slack-t.terms.Restart) + c
	least = min(least, t.terms.OnDemand*float64(t.terms.Restart)+float64(t.onDemand[warm]))
	if t.chain.up[c] && t.terms.allowsSpot(float64(slack)) {
		least = min(least, t.buy(c, work, slack))
	}
	return least
}

// buy returns what it costs to finish on a new spot instance.
func (t *chainTable) buy(c, work, slack int) (sum float64) {
	kept := 1.0
	for age := max(1, t.terms.Protected); age < t.terms.Restart; age++ {
		sum += kept * t.chain.loss[c] * (t.chain.price[c]*float64(age) + float64(t.lost[t.index(work, slack-age)+c]))
		kept *= 1 - t.chain.loss[c]
	}
	return sum + kept*(t.chain.price[c]*float64(t.terms.Restart)+float64(t.spot[t.index(work, slack-t.terms.Restart)+c]))
}

// afterLoss returns what it costs to finish when an instance was lost in the class. It interpolates between the four values around it.
func (t *chainTable) afterLoss(c int) func(work, slack float64) float64 {
	return func(work, slack float64) float64 {
		switch {
		case work <= 0:
			return 0
		case slack < float64(t.terms.Restart):
			return t.terms.atOnce(work, slack)
		}
		column, x := split(max(1, work), t.terms.Work+1)
		row, y := split(slack, t.terms.Slack+1)
		at := func(work, slack int) float64 { return float64(t.lost[t.index(work, slack)+c]) }
		return between(between(at(column, row), at(column+1, row), x), between(at(column, row+1), at(column+1, row+1), x), y)
	}
}

// onDemandIn returns what it costs to finish on on-demand, which takes so long to warm up and is kept for a tick at least.
func (t *chainTable) onDemandIn(c, warmUp, work, slack int) float64 {
	if slack-warmUp < t.terms.Restart {
		return t.terms.OnDemand * float64(work+warmUp)
	}
	at := t.index(work-1, min(slack-warmUp, t.terms.Slack))
	return t.terms.OnDemand*float64(warmUp+1) + expected(t.chain.next[c], t.onDemand[at:])
}

// onDemandBeside is onDemandIn while there are these offers. A class stands for many offers. If spot cost what it does there in the mean, and
// these offers are worse, the job would always be about to leave on-demand, and never do so. So as far as the best of them lasts,
// on-demand is as much better or worse than that as it is than spot in the class. It costs no more than to wait there until one of them has been
// up for longer.
func (t *chainTable) onDemandBeside(offers []offer, c, warmUp, work, slack int) float64 {
	least := t.onDemandIn(c, warmUp, work, slack)
	if len(offers) == 0 || !t.chain.up[c] || !t.terms.allowsSpot(float64(slack)) {
		return least
	}
	afterLoss, best, lasts := t.afterLoss(c), math.Inf(1), 0.0
	for _, o := range offers {
		if cost := t.terms.buy(o, float64(work), float64(slack), afterLoss); cost < best {
			best = cost
			_, lasts = o.after(float64(t.terms.Restart))
		}
	}
	least += lasts * (best - t.buy(c, work, min(slack, t.terms.Slack)))
	return min(least, t.terms.afterSeason(offers, float64(warmUp), float64(work), float64(slack), afterLoss))
}

// wait returns what it costs to finish if nothing runs in the next tick.
func (t *chainTable) wait(c, work, slack int) float64 {
	if slack-1 < t.terms.Restart {
		return math.Inf(1)
	}
	return t.terms.ValueOfTime + expected(t.chain.next[c], t.idle[t.index(work, min(slack-1, t.terms.Slack)):])
}
