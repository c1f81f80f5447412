package market

import (
	"math"
	"sort"
	"time"
)

// History is what was seen of the offerings of a market, each at its own times. It is not safe for concurrent use.
type History struct {
	offerings []series
}

// longestGap is the longest time between two observations, in seconds, in which nothing is taken to have been missed.
const longestGap = int64(maxGap / time.Second)

// series is what was seen of one offering. What was seen at one time is taken to hold until the next, unless there is too long a gap between them.
type series struct {
	region string
	// at is in Unix seconds, ascending. The others have one element for each.
	at    []int64
	up    []bool
	price []float64
	// since is from when on it has been up, or down.
	since []int64
	// upBefore are the seconds in which it was up before that time, and lossesBefore how often it went down up to that time.
	upBefore     []int64
	lossesBefore []int
}

// NewHistory returns a History of as many offerings as regions, that of each offering.
func NewHistory(regions []string) *History {
	h := &History{offerings: make([]series, len(regions))}
	for i, region := range regions {
		h.offerings[i].region = region
	}
	return h
}

// Observe enters what was seen of the offering at a time, which must not be before the last one: whether an instance could be bought
// and kept, and at which price.
func (h *History) Observe(offering int, at time.Time, up bool, price float64) {
	h.observe(offering, at.Unix(), up, price)
}

func (h *History) observe(offering int, now int64, up bool, price float64) {
	s := &h.offerings[offering]
	since, upBefore, losses := now, int64(0), 0
	if last := len(s.at) - 1; last >= 0 {
		upBefore, losses = s.upBefore[last], s.lossesBefore[last]
		if s.up[last] {
			upBefore += min(now-s.at[last], longestGap)
		}
		switch {
		case s.up[last] == up:
			since = s.since[last]
		case s.up[last] && now-s.at[last] <= longestGap:
			losses++
		}
	}
	s.at, s.up, s.price, s.since = append(s.at, now), append(s.up, up), append(s.price, price), append(s.since, since)
	s.upBefore, s.lossesBefore = append(s.upBefore, upBefore), append(s.lossesBefore, losses)
}

// last returns the index of what was seen last at that time, -1 if nothing was.
func (s *series) last(at int64) int {
	return sort.Search(len(s.at), func(i int) bool { return s.at[i] > at }) - 1
}

// past returns for how long the offering was up in the time before what was seen at i, and how often it went down.
func (s *series) past(i int, length int64) (up int64, losses int) {
	up, losses = s.upBefore[i], s.lossesBefore[i]
	from := s.last(s.at[i] - length)
	if from < 0 {
		return up, losses
	}
	up -= s.upBefore[from]
	if s.up[from] {
		up -= min(s.at[i]-length-s.at[from], longestGap)
	}
	return up, losses - s.lossesBefore[from]
}

// shareUp returns which part of the other offerings of the region was up at that time; one half if there are none.
func (h *History) shareUp(offering int, at int64) float64 {
	up, all := 0, 0
	for i := range h.offerings {
		other := &h.offerings[i]
		if i == offering || other.region != h.offerings[offering].region {
			continue
		}
		if last := other.last(at); last >= 0 {
			all++
			if other.up[last] {
				up++
			}
		}
	}
	if all == 0 {
		return .5
	}
	return float64(up) / float64(all)
}

const day = 24 * 60 * 60

// windows are the times before over which losses are counted.
var windows = []int64{day, 3 * day}

// priorUp is for how long an offering of which nothing is known counts as having been up, with one loss.
const priorUp = 195 * 60

// lossRates returns the logarithm of the losses per hour for each window.
func (s *series) lossRates(i int) (rates []float64) {
	for _, window := range windows {
		up, losses := s.past(i, window)
		rates = append(rates, math.Log(float64(losses+1)/(float64(up+priorUp)/3600)))
	}
	return rates
}

// Len returns how many offerings there are.
func (h *History) Len() int { return len(h.offerings) }

// StaleAfter is for how long what was seen says something about the present.
const StaleAfter = 6 * time.Hour

// At returns what was seen last of the offering at the time. An offering of which nothing was ever seen is not up; one that was not looked
// at for some hours is taken to be, since only a purchase will tell.
func (h *History) At(offering int, at time.Time) (up bool, price float64) {
	s := &h.offerings[offering]
	last := s.last(at.Unix())
	if last < 0 {
		return false, 0
	}
	return s.up[last] || s.isStale(last, at), s.price[last]
}

// IsSeen returns whether anything was seen of an offering in the hour until the time.
func (h *History) IsSeen(at time.Time) bool {
	for i := range h.offerings {
		s := &h.offerings[i]
		if last := s.last(at.Unix()); last >= 0 && at.Unix()-s.at[last] <= longestGap {
			return true
		}
	}
	return false
}

// SinceDown returns how long ago the offering, which was up at the time, had been seen to be down: it had not been up for as long. It returns false
// if the offering was not up, or had never been seen to be down.
func (h *History) SinceDown(offering int, at time.Time) (ago time.Duration, known bool) {
	s := &h.offerings[offering]
	last := s.last(at.Unix())
	if last < 0 || !s.up[last] {
		return 0, false
	}
	first := sort.Search(last, func(i int) bool { return s.at[i] >= s.since[last] })
	if first == 0 {
		return 0, false
	}
	return time.Duration(at.Unix()-s.at[first-1]) * time.Second, true
}

func (s *series) isStale(last int, at time.Time) bool { return isStale(s.at[last], at.Unix()) }

func isStale(seen, now int64) bool { return now-seen > int64(StaleAfter/time.Second) }
