package main

import (
	"math"

	"gpu-spot-autoscaler/test/bench/report"
)

// row is one setting. Money is per hour of useful work, the mean over all starts.
type row struct {
	// Report are the ticks of the jobs, Fit those of which the market was seen before.
	Fit             string    `json:"fit"`
	Report          string    `json:"report"`
	Zones           []string  `json:"zones"`
	Slack           float64   `json:"slack"`
	Protect         string    `json:"protect"`
	Observe         string    `json:"observe"`
	Knowledge       knowledge `json:"knowledge"`
	ValueOfTime     float64   `json:"deadline_value_of_time"`
	Omniscient      float64   `json:"omniscient"`
	UniformProgress float64   `json:"uniform_progress"`
	Greedy          float64   `json:"greedy"`
	OnDemand        float64   `json:"on_demand"`
	Ours            float64   `json:"ours"`
	// Hindsight is by thresholds that were chosen for these jobs, 0 if that was not asked for.
	Hindsight float64 `json:"hindsight,omitempty"`
	// GapClosed is the part of the difference between the better of uniform progress and greedy and the omniscient that ours saves, and
	// GapError its standard error, by leaving out one start after the other.
	GapClosed float64 `json:"gap_closed"`
	GapError  float64 `json:"gap_closed_error"`
	// Completion times of 95 % of the jobs are at most so many times their work.
	CompletionOurs   float64 `json:"jct_p95_ours"`
	CompletionGreedy float64 `json:"jct_p95_greedy"`
	// Misses counts deadlines that ours missed though the omniscient kept them, BaselineMisses the same of the baselines.
	Misses         int `json:"misses"`
	BaselineMisses int `json:"baseline_misses"`
}

func (r row) baseline() float64 { return min(r.UniformProgress, r.Greedy) }

// hindsightClosed is GapClosed of Hindsight.
func (r row) hindsightClosed() float64 {
	return result{omniscient: r.Omniscient, uniform: r.UniformProgress, greedy: r.Greedy, ours: r.Hindsight}.gapClosed()
}

// hasGap returns whether the better baseline costs so much more than the omniscient that the gap is worth its name.
func (r row) hasGap() bool { return r.baseline() > (1+leastGap)*r.Omniscient }

// result is what all policies made of one start.
type result struct{ omniscient, uniform, greedy, onDemand, ours float64 }

func rowOf(s *sighted, j job, starts []int) row {
	r := row{Zones: s.trace.zones}
	var results []result
	var ours, greedily []float64
	for _, start := range starts {
		least := omniscient(s.trace, start, j) / float64(j.work)
		each := func(p policy, misses *int) outcome {
			o := run(s.trace, start, j, p)
			if o.missed(j) && !math.IsInf(least, 1) {
				*misses++
			}
			return o
		}
		mine, other := each(s.policy(j, start), &r.Misses), each(greedy{j}, &r.BaselineMisses)
		ours, greedily = append(ours, mine.stretch(j)), append(greedily, other.stretch(j))
		results = append(results, result{
			omniscient: least, ours: mine.perUsefulHour(j), greedy: other.perUsefulHour(j),
			uniform:  each(uniformProgress{j}, &r.BaselineMisses).perUsefulHour(j),
			onDemand: each(onDemandOnly{}, &r.BaselineMisses).perUsefulHour(j),
		})
	}
	mean := meanOf(results, -1)
	r.Omniscient, r.UniformProgress, r.Greedy, r.OnDemand, r.Ours = mean.omniscient, mean.uniform, mean.greedy, mean.onDemand, mean.ours
	r.CompletionOurs, r.CompletionGreedy = report.Percentile(ours, 95), report.Percentile(greedily, 95)
	r.GapClosed, r.GapError = mean.gapClosed(), jackknife(results)
	return r
}

// gapClosed returns 0 if there is no gap.
func (r result) gapClosed() float64 {
	baseline := min(r.uniform, r.greedy)
	if baseline <= r.omniscient {
		return 0
	}
	return (baseline - r.ours) / (baseline - r.omniscient)
}

// meanOf returns the mean of all results but the one of that index.
func meanOf(results []result, without int) (mean result) {
	count := 0
	for i, r := range results {
		if i == without {
			continue
		}
		count++
		mean.omniscient += r.omniscient
		mean.uniform += r.uniform
		mean.greedy += r.greedy
		mean.onDemand += r.onDemand
		mean.ours += r.ours
	}
	for _, sum := range []*float64{&mean.omniscient, &mean.uniform, &mean.greedy, &mean.onDemand, &mean.ours} {
		*sum /= float64(count)
	}
	return mean
}

// jackknife returns the standard error of the part of the gap that is closed; 0 for one result. Jobs that overlap in time are not
// independent of each other, so that it is too small if there are many.
func jackknife(results []result) float64 {
	n := float64(len(results))
	if n < 2 {
		return 0
	}
	sum, squares := 0.0, 0.0
	for i := range results {
		gap := meanOf(results, i).gapClosed()
		sum += gap
		squares += gap * gap
	}
	return math.Sqrt(max(0, (n-1)/n*(squares-sum*sum/n)))
}
