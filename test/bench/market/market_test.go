package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newTrace has a zone for each string, with a digit for what each tick costs and a dot where it is not up.
func newTrace(zones ...string) *trace {
	t := &trace{}
	for _, zone := range zones {
		up, price := make([]bool, len(zone)), make([]float64, len(zone))
		for i, c := range zone {
			if up[i] = c != '.'; up[i] {
				price[i] = float64(c - '0')
			}
		}
		t.zones, t.up, t.price = append(t.zones, zone), append(t.up, up), append(t.price, price)
	}
	return t
}

func TestPoliciesOnCasesComputedByHand(t *testing.T) {
	of := func(work, restart, deadline int) job {
		return job{work: work, restart: restart, deadline: deadline, onDemandPrice: 9}
	}
	greedily := func(j job) policy { return greedy{j} }
	uniformly := func(j job) policy { return uniformProgress{j} }
	for name, test := range map[string]struct {
		trace  *trace
		job    job
		policy func(job) policy
		want   outcome
	}{
		"on-demand pays for the warm-up too": {
			newTrace("1111"), of(2, 1, 9), func(job) policy { return onDemandOnly{} }, outcome{cost: 27, ticks: 3},
		},
		"greedy takes the cheapest and stays": {
			newTrace("211111", "333333"), of(3, 1, 9), greedily, outcome{cost: 5, ticks: 4},
		},
		"greedy waits, and moves on when it is reclaimed": {
			newTrace("..11.......", ".......2222"), of(4, 1, 20), greedily, outcome{cost: 2 + 8, ticks: 11, lost: 1},
		},
		"greedy ends on-demand": {
			newTrace("..........."), of(2, 1, 5), greedily, outcome{cost: 27, ticks: 5},
		},
		"a protected instance outlives its zone": {
			newTrace("1.1"), job{work: 2, restart: 1, deadline: 9, protected: 3, onDemandPrice: 9}, greedily, outcome{cost: 2, ticks: 3},
		},
		"uniform progress goes on-demand when it is behind, and back when it is ahead": {
			// On the line at the start, so it waits. Behind at tick 1: a warm-up, then work until 3 of 6 are done at tick 5, where
			// 3 × 14 is no less than 6 × (5 + 2 × 1). Then a warm-up and the other 3 as spot.
			newTrace(".....1111111"), of(6, 1, 14), uniformly, outcome{cost: 4*9 + 4, ticks: 9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(test.trace, 0, test.job, test.policy(test.job), test.trace.sight)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestOmniscientOnCasesComputedByHand(t *testing.T) {
	for name, test := range map[string]struct {
		trace *trace
		job   job
		want  float64
	}{
		"it waits for the cheap zone": {
			newTrace("555555555", "....11111"), job{work: 3, restart: 1, deadline: 9, onDemandPrice: 9}, 4,
		},
		"not with all of its work if that would be too late": {
			newTrace("555555555", "....11111"), job{work: 3, restart: 1, deadline: 7, onDemandPrice: 9}, 2*5 + 3*1,
		},
		"it does not begin what will be reclaimed in the warm-up": {
			newTrace("1.1.1111"), job{work: 2, restart: 2, deadline: 8, onDemandPrice: 9}, 4,
		},
		"it moves while both are up": {
			newTrace("11.....", "2222222"), job{work: 4, restart: 1, deadline: 7, onDemandPrice: 9}, 2 + 2*4,
		},
		"a protected instance outlives its zone": {
			newTrace("1.1...."), job{work: 2, restart: 1, deadline: 3, protected: 3, onDemandPrice: 9}, 2,
		},
		"on-demand where nothing else is over in time": {
			newTrace("......."), job{work: 2, restart: 1, deadline: 7, onDemandPrice: 9}, 27,
		},
		"nothing is over in time": {
			newTrace("1111"), job{work: 2, restart: 1, deadline: 2, onDemandPrice: 9}, math.Inf(1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, omniscient(test.trace, 0, test.job))
		})
	}
}

// The figures are those of earlier measurements of the last ten days, to two per cent. The omniscient is computed for one of them: it takes seconds.
func TestTheRecordingCostsWhatIsKnownOfIt(t *testing.T) {
	const data = "../../alisim/market/data/v100-9zone/"
	read := func(zones []string) *trace {
		found, err := readTrace(data+"availability.csv", data+"price.csv", zones, 13292)
		require.NoError(t, err)
		return found
	}
	o, err := parse(nil)
	require.NoError(t, err)
	west, east := read(o.zones[1]), read(o.zones[3])
	for name, test := range map[string]struct {
		trace            *trace
		slack            float64
		omniscient, base float64
	}{
		"us-west-2, tight":   {west, 1.05, 1.051, 1.468},
		"us-west-2":          {west, 1.15, 0, 1.109},
		"us-east-1, loose":   {east, 2, 0, 1.411},
		"us-east-1":          {east, 1.15, 0, 1.960},
		"us-east-1, tight":   {east, 1.05, 0, 2.351},
		"us-east-1, slacker": {east, 1.33, 0, 1.735},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(443, 4, 0, test.slack, o.onDemand)
			var least, uniform, greedily float64
			for _, start := range o.startsOf(j) {
				if test.omniscient > 0 {
					least += omniscient(test.trace, start, j) / float64(o.starts*j.work)
				}
				uniform += run(test.trace, start, j, uniformProgress{j}, test.trace.sight).perUsefulHour(j) / float64(o.starts)
				greedily += run(test.trace, start, j, greedy{j}, test.trace.sight).perUsefulHour(j) / float64(o.starts)
			}
			assert.InEpsilon(t, test.base, min(uniform, greedily), .02)
			if test.omniscient > 0 {
				assert.InEpsilon(t, test.omniscient, least, .02)
			}
		})
	}
}
