package finish

import "math"

// outageBounds are the ends, in ticks, of all but the last class of outages, by how long they have lasted.
var outageBounds = []float64{6, 30}

// classes are those of a market: by what useful time costs on its best offer, and without offers by how long there have been none.
type classes struct {
	// bounds are the ends of all but the last class with offers.
	bounds []float64
}

// newClasses returns as many classes of offers, which were equally frequent, by the costs that were seen, ascending.
func newClasses(count int, costs []float64) classes {
	var c classes
	for i := 1; i < count && len(costs) > 0; i++ {
		c.bounds = append(c.bounds, costs[i*len(costs)/count])
	}
	return c
}

// up is how many of the classes have offers; they come first.
func (c classes) up() int  { return len(c.bounds) + 1 }
func (c classes) all() int { return c.up() + len(outageBounds) + 1 }

// of returns the class of a market whose best offer costs so much, infinity if there is none, for which it is how long there has been none.
func (c classes) of(cost, outage float64) int {
	if math.IsInf(cost, 1) {
		return c.up() + below(outageBounds, outage)
	}
	return below(c.bounds, cost)
}

// below returns how many of the ascending bounds are less than x.
func below(bounds []float64, x float64) (count int) {
	for _, bound := range bounds {
		if x > bound {
			count++
		}
	}
	return count
}

// glimpse is the market as it was at one of many times.
type glimpse struct {
	// best is the offering of the least cost, cost is what useful time costs there, and price what the instance does.
	best        Place
	cost, price float64
	// outage is for how long there have been no offers.
	outage float64
	// lost is true if the instance that a job had was lost since the last glimpse, kept if it was not.
	lost, kept bool
	// afterGap is whether nobody looked for a time between the last glimpse and this one.
	afterGap bool
}

// Weights of what is believed before anything was seen, in ticks or in changes.
const (
	lossPrior, lossPriorTicks = .5, 50.
	classPriorTicks           = 60.
	nextPrior, lostPrior      = .5, 3.
	// endPrior is how probable an outage is to end by the next glimpse.
	endPrior = .05
)

// chainOf estimates the chain from glimpses that are so many ticks apart.
func (c classes) chainOf(glimpses []glimpse, apart float64) chain {
	n := c.all()
	seen := chain{up: make([]bool, n), price: make([]float64, n), loss: make([]float64, n), next: square(n), kept: square(n), lost: square(n)}
	prices, held, losses := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, g := range glimpses {
		class := c.of(g.cost, g.outage)
		if class < c.up() {
			seen.up[class] = true
			seen.price[class] += g.price
			prices[class]++
		}
		if i == 0 || g.afterGap {
			continue
		}
		before := c.of(glimpses[i-1].cost, glimpses[i-1].outage)
		seen.next[before][class]++
		switch {
		case g.lost:
			held[before] += apart
			losses[before]++
			seen.lost[before][class]++
		case g.kept:
			held[before] += apart
			seen.kept[before][class]++
		}
	}
	c.normalize(&seen, prices, held, losses, apart)
	return seen
}

// normalize makes counts into means and probabilities.
func (c classes) normalize(seen *chain, prices, held, losses []float64, apart float64) {
	n := c.all()
	allLosses, allHeld, anyLost := lossPrior, lossPriorTicks, make([]float64, n)
	for class := range n {
		allLosses += losses[class]
		allHeld += held[class]
		for to, count := range seen.lost[class] {
			anyLost[to] += count
		}
	}
	anyLost = distribution(anyLost, nil, 0)
	for class := range n {
		if prices[class] > 0 {
			seen.price[class] /= prices[class]
		}
		seen.loss[class] = (losses[class] + classPriorTicks*allLosses/allHeld) / (held[class] + classPriorTicks)
		stays := c.staying(class)
		seen.next[class] = perTick(distribution(seen.next[class], stays, nextPrior), class, apart)
		seen.kept[class] = perTick(distribution(seen.kept[class], stays, nextPrior), class, apart)
		seen.lost[class] = distribution(seen.lost[class], anyLost, lostPrior)
	}
}

// staying is what is believed of a class of which nothing was seen: the market stays as it is, but outages last longer, or end.
func (c classes) staying(class int) []float64 {
	to := make([]float64, c.all())
	if class < c.up() {
		to[class] = 1
		return to
	}
	to[0] = endPrior
	to[min(class+1, c.all()-1)] += 1 - endPrior
	return to
}

// distribution returns the counts, and the prior with its weight, as probabilities. Without either it is the first for sure.
func distribution(counts, prior []float64, weight float64) []float64 {
	sum, result := 0.0, make([]float64, len(counts))
	for i, count := range counts {
		result[i] = count
		if prior != nil {
			result[i] += weight * prior[i]
		}
		sum += result[i]
	}
	if sum == 0 {
		result[0] = 1
		return result
	}
	for i := range result {
		result[i] /= sum
	}
	return result
}

// perTick returns the probabilities in one of so many ticks, in each of which the class stays with what is left.
func perTick(probability []float64, class int, ticks float64) []float64 {
	for i := range probability {
		probability[i] /= ticks
	}
	probability[class] += 1 - 1/ticks
	return probability
}

func square(n int) [][]float64 {
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = make([]float64, n)
	}
	return rows
}
