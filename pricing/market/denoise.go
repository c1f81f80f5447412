package market

import "time"

// Without returns the history as it probably was if so much of what was seen is wrong: for each time the more probable of up and down, by what was
// seen until then. Where that is next to nothing, it returns the history itself.
func (h *History) Without(p Noise) *History {
	if !p.Matters() {
		return h
	}
	clean := &History{offerings: make([]series, len(h.offerings))}
	for offering := range h.offerings {
		s := &h.offerings[offering]
		clean.offerings[offering].region = s.region
		belief := p.stationary()
		for i := range s.at {
			if i > 0 {
				belief = p.next(belief)
			}
			belief = p.seen(belief, s.up[i])
			clean.observe(offering, s.at[i], belief > .5, s.price[i])
		}
	}
	return clean
}

// leastNoise is how much of what was seen has to be wrong for anything to be done about it. Offerings that are really down for a single
// look are taken for wrong observations too, and there are some in every market.
const leastNoise = .05

// Noise is how much of what is seen is wrong: a hidden Markov model, with the probabilities of a change from one look to the next, and of a wrong
// observation.
//
// Observations may be wrong because they are hints: what Alibaba Cloud says of a stock is not what a purchase finds (DescribeAvailableResource
// promises nothing).
type Noise struct{ lose, regain, wrong float64 }

// Matters returns whether so much is wrong that something is to be done about it.
func (p Noise) Matters() bool { return p.wrong >= leastNoise }

func (p Noise) stationary() float64     { return p.regain / (p.lose + p.regain) }
func (p Noise) next(up float64) float64 { return up*(1-p.lose) + (1-up)*p.regain }
func (p Noise) seen(up float64, as bool) float64 {
	ifUp, ifDown := p.likelihood(as)
	return up * ifUp / (up*ifUp + (1-up)*ifDown)
}

// likelihood returns how probable it is to see an offering as it was seen if it is up, and if it is down.
func (p Noise) likelihood(as bool) (ifUp, ifDown float64) {
	if as {
		return 1 - p.wrong, p.wrong
	}
	return p.wrong, 1 - p.wrong
}

// Noise estimates how much of what was seen until the time is wrong (by the algorithm of Baum and Welch). All offerings share it.
func (h *History) Noise(until time.Time) Noise {
	const steps, tolerance = 40, 1e-4
	p := Noise{lose: .05, regain: .05, wrong: .1}
	for range steps {
		var counts noiseCounts
		for offering := range h.offerings {
			s := &h.offerings[offering]
			counts.add(p, s.up[:s.last(until.Unix())+1])
		}
		before := p
		p = counts.estimate()
		if max(p.wrong-before.wrong, before.wrong-p.wrong) < tolerance {
			break
		}
	}
	return p
}

// noiseCounts are expected numbers, with a prior of one each so that nothing is impossible.
type noiseCounts struct{ ups, downs, losses, returns, wrong, all float64 }

func (c noiseCounts) estimate() Noise {
	return Noise{lose: (c.losses + 1) / (c.ups + 2), regain: (c.returns + 1) / (c.downs + 2), wrong: (c.wrong + 1) / (c.all + 20)}
}

// add adds what is expected of one offering: forwards and backwards over what was seen.
func (c *noiseCounts) add(p Noise, seen []bool) {
	n := len(seen)
	if n == 0 {
		return
	}
	before, after := make([]float64, n), make([]float64, n)
	for i, belief := 0, p.stationary(); i < n; i++ {
		before[i] = belief
		after[i] = p.seen(belief, seen[i])
		belief = p.next(after[i])
	}
	smooth := after[n-1]
	for i := n - 1; ; i-- {
		c.all++
		if seen[i] {
			c.wrong += 1 - smooth
		} else {
			c.wrong += smooth
		}
		if i == 0 {
			return
		}
		// What was the last look's state, given this one's: the joint probabilities of both.
		stayed := after[i-1] * (1 - p.lose) * smooth / before[i]
		lost := after[i-1] * p.lose * (1 - smooth) / (1 - before[i])
		returned := (1 - after[i-1]) * p.regain * smooth / before[i]
		smooth = stayed + lost
		c.ups += smooth
		c.downs += 1 - smooth
		c.losses += lost
		c.returns += returned
	}
}
