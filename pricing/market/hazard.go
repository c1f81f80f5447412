package market

import (
	"math"
	"slices"
	"time"
)

// ageBounds are the ends of the intervals of age, in seconds, in each of which an offering is lost at a constant rate: one that has
// just come back is lost twenty times as often as one that has been there for half a day.
var ageBounds = []int64{195, 3 * 195, 7 * 195, 15 * 195, 31 * 195, 63 * 195, 127 * 195}

// interval returns in which of them, or in the one beyond the last, an age lies.
func interval(age int64) int {
	for i, bound := range ageBounds {
		if age < bound {
			return i
		}
	}
	return len(ageBounds)
}

// shrinkage is how strongly all weights but that of the mean are drawn to zero, so that little is believed of offerings of which
// little was seen. On days 1 to 20 of the recorded market, anything from 2 to 10 predicts the next day equally well.
const shrinkage = 6

// maxLogRate keeps a rate, per hour, from overflowing.
const maxLogRate = 5

// Hazard is at which rate offerings are lost, by what is seen of them. It is safe for concurrent use.
type Hazard struct {
	layout  layout
	weights []float64
}

// layout is where the features are: the mean, each offering, each interval of age, the losses of late, and the region.
type layout struct{ offerings int }

func (l layout) ages() int { return 1 + l.offerings }
func (l layout) rest() int { return l.ages() + len(ageBounds) + 1 }
func (l layout) size() int { return l.rest() + len(windows) + 1 }

// features returns those of what was seen at i of an offering that was up, without its age.
func (h *History) features(offering, i int) []float64 {
	l := layout{len(h.offerings)}
	s := &h.offerings[offering]
	x := make([]float64, l.size())
	x[0], x[1+offering] = 1, 1
	rest := x[l.rest():]
	copy(rest, s.lossRates(i))
	rest[len(windows)] = h.shareUp(offering, s.at[i])
	return x
}

// Fit estimates the rates by what was seen from one time to the other. Gaps of more than an hour are left out. The rate is exp(weights · features) between a time at which an
// offering was up and the next (a piecewise exponential model, fitted as a Poisson regression with the time as exposure).
func (h *History) Fit(from, to time.Time) *Hazard {
	l := layout{len(h.offerings)}
	var data regression
	for offering := range h.offerings {
		s := &h.offerings[offering]
		for i := max(0, s.last(from.Unix()-1)+1); i+1 < len(s.at) && s.at[i+1] <= to.Unix(); i++ {
			if s.up[i] && s.at[i+1]-s.at[i] <= longestGap {
				data.addExposure(h.features(offering, i), l, s, i)
			}
		}
	}
	return &Hazard{layout: l, weights: data.fit(l.size())}
}

// addExposure adds the time from what was seen at i, when the offering was up, until it was seen again, split by the ages that it passed through. When in
// that time it was lost is not known. So each age gets a share of the loss in proportion to its part of the time, and half of that part as exposure.
func (r *regression) addExposure(features []float64, l layout, s *series, i int) {
	born, end, lost := s.since[i], s.at[i+1], !s.up[i+1]
	for from := s.at[i]; from < end; {
		n, until := interval(from-born), end
		if n < len(ageBounds) {
			until = min(end, born+ageBounds[n])
		}
		x := slices.Clone(features)
		x[l.ages()+n] = 1
		hours, losses := float64(until-from)/3600, 0.
		if lost {
			hours, losses = hours/2, float64(until-from)/float64(end-s.at[i])
		}
		r.add(x, hours, losses)
		from = until
	}
}

// Lives returns equally probable times, ascending, for which an instance of the offering is kept from now on, by what was seen until then. It returns nil
// if the offering was not seen before. A time is 0 if the offering has been lost since it was seen. Of the time since then, ten minutes count at most: if
// nobody has looked for hours, only a purchase tells.
func (z *Hazard) Lives(h *History, offering int, now time.Time, count int) []time.Duration {
	s := &h.offerings[offering]
	i := s.last(now.Unix())
	if i < 0 {
		return nil
	}
	base := dot(z.weights, h.features(offering, i))
	unseen := int64(0)
	if s.up[i] {
		unseen = min(now.Unix()-s.at[i], int64(look/time.Second))
	}
	age := now.Unix() - unseen - s.since[i]
	lives := make([]time.Duration, count)
	for n := range lives {
		survival := 1 - (float64(n)+.5)/float64(count)
		lives[n] = max(0, z.until(base, age, -math.Log(survival))-time.Duration(unseen)*time.Second)
	}
	return lives
}

// until returns after how long the rates from the age on add up to so much.
func (z *Hazard) until(base float64, age int64, total float64) time.Duration {
	const longest = 30 * day
	spent := 0.0
	for i := interval(age); ; i++ {
		rate := math.Exp(min(base+z.weights[z.layout.ages()+i], maxLogRate)) / 3600 // per second
		need := total / rate
		if i == len(ageBounds) {
			return time.Duration(min(spent+need, longest) * float64(time.Second))
		}
		length := float64(ageBounds[i]-age) - spent
		if need <= length {
			return time.Duration((spent + need) * float64(time.Second))
		}
		total -= rate * length
		spent += length
	}
}
