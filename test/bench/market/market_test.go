package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// traceOf has a zone for each string, with a digit for what each tick costs and a dot where it is not up.
func traceOf(zones ...string) *trace {
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
			traceOf("1111"), of(2, 1, 9), func(job) policy { return onDemandOnly{} }, outcome{cost: 27, ticks: 3},
		},
		"greedy takes the cheapest and stays": {
			traceOf("211111", "333333"), of(3, 1, 9), greedily, outcome{cost: 5, ticks: 4},
		},
		"greedy waits, and moves on when it is reclaimed": {
			traceOf("..11.......", ".......2222"), of(4, 1, 20), greedily, outcome{cost: 2 + 8, ticks: 11, lost: 1},
		},
		"greedy ends on-demand": {
			traceOf("..........."), of(2, 1, 5), greedily, outcome{cost: 27, ticks: 5},
		},
		"a protected instance outlives its zone": {
			traceOf("1.1"), job{work: 2, restart: 1, deadline: 9, protected: 3, onDemandPrice: 9}, greedily, outcome{cost: 2, ticks: 3},
		},
		"uniform progress goes on-demand when it is behind, and back when it is ahead": {
			// On the line at the start, so it waits. Behind at tick 1: a warm-up, then work until 3 of 6 are done at tick 5, where
			// 3 × 14 is no less than 6 × (5 + 2 × 1). Then a warm-up and the other 3 as spot.
			traceOf(".....1111111"), of(6, 1, 14), uniformly, outcome{cost: 4*9 + 4, ticks: 9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(test.trace, 0, test.job, test.policy(test.job))
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
			traceOf("555555555", "....11111"), job{work: 3, restart: 1, deadline: 9, onDemandPrice: 9}, 4,
		},
		"not with all of its work if that would be too late": {
			traceOf("555555555", "....11111"), job{work: 3, restart: 1, deadline: 7, onDemandPrice: 9}, 2*5 + 3*1,
		},
		"it does not begin what will be reclaimed in the warm-up": {
			traceOf("1.1.1111"), job{work: 2, restart: 2, deadline: 8, onDemandPrice: 9}, 4,
		},
		"it moves while both are up": {
			traceOf("11.....", "2222222"), job{work: 4, restart: 1, deadline: 7, onDemandPrice: 9}, 2 + 2*4,
		},
		"a protected instance outlives its zone": {
			traceOf("1.1...."), job{work: 2, restart: 1, deadline: 3, protected: 3, onDemandPrice: 9}, 2,
		},
		"on-demand where nothing else is over in time": {
			traceOf("......."), job{work: 2, restart: 1, deadline: 7, onDemandPrice: 9}, 27,
		},
		"nothing is over in time": {
			traceOf("1111"), job{work: 2, restart: 1, deadline: 2, onDemandPrice: 9}, math.Inf(1),
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
	recording, err := readRecording(data+"availability.csv", data+"price.csv")
	require.NoError(t, err)
	read := func(zones []string) *trace {
		found, err := newTrace(recording, zones, 13292)
		require.NoError(t, err)
		return found
	}
	o, err := parse(nil)
	require.NoError(t, err)
	all, west, six, east := read(o.zones[0]), read(o.zones[1]), read(o.zones[2]), read(o.zones[3])
	for name, test := range map[string]struct {
		trace            *trace
		slack            float64
		omniscient, base float64
	}{
		"all, tight":        {all, 1.05, 0, 1.155},
		"us-west-2, tight":  {west, 1.05, 1.051, 1.468},
		"us-west-2":         {west, 1.15, 0, 1.109},
		"us-east, tight":    {six, 1.05, 0, 1.299},
		"us-east":           {six, 1.15, 0, .995},
		"us-east, looser":   {six, 1.33, 0, .993},
		"us-east, loose":    {six, 2, 0, .989},
		"us-east-1, tight":  {east, 1.05, 0, 2.351},
		"us-east-1":         {east, 1.15, 0, 1.960},
		"us-east-1, looser": {east, 1.33, 0, 1.735},
		"us-east-1, loose":  {east, 2, 0, 1.411},
	} {
		t.Run(name, func(t *testing.T) {
			j := o.job(setting{slack: test.slack})
			starts, err := o.startsOf(o.report, j)
			require.NoError(t, err)
			var least, uniform, greedily float64
			for _, start := range starts {
				if test.omniscient > 0 {
					least += omniscient(test.trace, start, j) / float64(o.starts*j.work)
				}
				uniform += run(test.trace, start, j, uniformProgress{j}).perUsefulHour(j) / float64(o.starts)
				result := run(test.trace, start, j, greedy{j})
				assert.False(t, result.missed(j), "greedy from tick %d", start)
				greedily += result.perUsefulHour(j) / float64(o.starts)
			}
			assert.InEpsilon(t, test.base, min(uniform, greedily), .02)
			if test.omniscient > 0 {
				assert.InEpsilon(t, test.omniscient, least, .02)
			}
		})
	}
}

// Rows of the days on which the policy of this project was developed, with fewer jobs than are measured.
func TestOursIsCheaperThanTheBaselinesAndNeverLate(t *testing.T) {
	const data = "../../alisim/market/data/v100-9zone/"
	recording, err := readRecording(data+"availability.csv", data+"price.csv")
	require.NoError(t, err)
	o, err := parse([]string{"--fit", "0:4430", "--report", "4430:8861", "--starts", "5"})
	require.NoError(t, err)
	east, err := newTrace(recording, o.zones[2], o.report.to)
	require.NoError(t, err)
	j := o.job(setting{slack: 1.15})
	starts, err := o.startsOf(o.report, j)
	require.NoError(t, err)
	for knows, least := range map[knowledge]float64{polled: .2, noisy: -.1, none: -.2, probes: -.9} {
		t.Run(string(knows), func(t *testing.T) {
			r := rowOf(newSighted(east, j, o, setting{fit: o.fit, knows: knows}), j, starts)
			assert.Zero(t, r.Misses)
			assert.Greater(t, r.GapClosed, least, "%.3f, the baselines %.3f", r.Ours, r.baseline())
		})
	}
}

func TestAPurchaseThatIsRefusedTakesATickAndCostsNothing(t *testing.T) {
	j := job{work: 2, restart: 1, deadline: 9, onDemandPrice: 9}
	got := run(traceOf(".111"), 0, j, always(0))
	assert.Equal(t, outcome{cost: 3, ticks: 4}, got)
}

// A warm-up and a tick of work on-demand, which goes on while spot is refused, and the same as spot.
func TestAJobThatIsRefusedSpotStaysOnDemand(t *testing.T) {
	j := job{work: 2, restart: 1, deadline: 9, onDemandPrice: 9}
	assert.Equal(t, outcome{cost: 9 + 9 + 1 + 1, ticks: 4}, run(traceOf("..11"), 0, j, leavesOnDemand{}))
}

// leavesOnDemand is on-demand in the first tick.
type leavesOnDemand struct{}

func (leavesOnDemand) decide(p progress, _ sight) int {
	if p.elapsed == 0 {
		return onDemand
	}
	return 0
}

// always runs on the zone.
type always int

func (a always) decide(progress, sight) int { return int(a) }

func TestChoosersOnCasesComputedByHand(t *testing.T) {
	jobs := []streamJob{{arrival: 0, work: 2}}
	o := options{tick: 195 * time.Second, restart: 195 * time.Second, onDemand: 9}
	dead := traceOf(".........", "222222222") // the cheaper zone is never there, and its price is 0
	for name, c := range map[string]struct {
		trace *trace
		want  streamRow
	}{
		// It asks the first zone in each tick, and never gets anywhere else.
		"cheapest": {dead, streamRow{Refused: 9}},
		// A refusal takes a tick, the next one the other zone. Then a warm-up and the work.
		"karpenter":          {dead, streamRow{Refused: 1, Cost: 3, CompletionP50: 2, CompletionP95: 2}},
		"cluster-autoscaler": {dead, streamRow{Refused: 1, Cost: 3, CompletionP50: 2, CompletionP95: 2}},
		"ours":               {dead, streamRow{Refused: 1, Cost: 3, CompletionP50: 2, CompletionP95: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var row streamRow
			runStream(c.trace, jobs, 1, choosers(c.trace.zones, o)[name], &row, 0, 1)
			if math.IsNaN(row.Cost) {
				row.Cost, row.Total = 0, 0
			}
			row.Total = 0
			assert.Equal(t, c.want, row)
		})
	}
}

func TestBackoffDoublesAndIsForgottenAfterAPurchase(t *testing.T) {
	r := &remembering{forget: backoff(func(d time.Duration) int { return int(d / time.Minute) })}
	price := []float64{1, 2}
	assert.Equal(t, 0, r.choose(0, price))
	r.refused(0, 0)
	assert.Equal(t, 0, r.choose(0, price), "others of the same tick do not know yet")
	r.refused(0, 0)
	for tick := 1; tick <= 5; tick++ {
		assert.Equal(t, 1, r.choose(tick, price))
	}
	assert.Equal(t, 0, r.choose(6, price))
	r.refused(0, 6)
	assert.Equal(t, 1, r.choose(16, price))
	assert.Equal(t, 0, r.choose(17, price))
	r.bought(0, 17)
	r.refused(0, 20)
	assert.Equal(t, 0, r.choose(26, price))
}

func TestAnOfferingThatIsLostOftenIsLeftForOneThatIsNot(t *testing.T) {
	flaky, steady := strings.Repeat("1111....", 40), strings.Repeat("2", 320)
	zones := traceOf(flaky, steady)
	var jobs []streamJob
	for n := range 30 {
		jobs = append(jobs, streamJob{arrival: 8 * n, work: 20})
	}
	o := options{tick: time.Hour, restart: time.Hour, onDemand: 9}
	lost := map[string]float64{}
	for _, name := range []string{"cluster-autoscaler", "ours"} {
		var row streamRow
		runStream(zones, jobs, 1, choosers([]string{"flaky", "steady"}, o)[name], &row, 9, 1)
		lost[name] = row.Lost
	}
	assert.Less(t, lost["ours"], .7*lost["cluster-autoscaler"], "%v", lost)
}

func TestAStreamIsSpreadOverTheWindow(t *testing.T) {
	jobs, err := readStream("../../alisim/market/data/jobs/gavel-msr.csv", window{1000, 5000}, 18)
	require.NoError(t, err)
	assert.Len(t, jobs, 1400)
	assert.Equal(t, 1000, jobs[0].arrival)
	for _, j := range jobs {
		assert.LessOrEqual(t, j.arrival+2*j.work, 5000)
		assert.GreaterOrEqual(t, j.work, int(shortestJob*18))
	}
	_, err = readStream("../../alisim/market/data/jobs/README.md", window{1000, 5000}, 18)
	assert.Error(t, err)
	_, err = readStream("../../alisim/market/data/jobs/gavel-msr.csv", window{1000, 1100}, 18)
	assert.ErrorContains(t, err, "--report")
}

func TestRollingWindowsLieInsideTheFittedOneAndKnowNothingLater(t *testing.T) {
	o, err := parse([]string{"--fit", "0:400", "--report", "400:700", "--rolling", "3", "--zones", "a", "--slack", "1.05"})
	require.NoError(t, err)
	var got [][2]string
	for _, s := range o.settings() {
		got = append(got, [2]string{s.fit.String(), s.report.String()})
	}
	assert.Equal(t, [][2]string{{"0:400", "400:700"}, {"0:100", "100:200"}, {"0:200", "200:300"}, {"0:300", "300:400"}}, got)
	_, err = parse([]string{"--rolling", "-1"})
	assert.ErrorContains(t, err, "--rolling")
}

func TestRowsAreSummedUpByWindowProtectionAndKnowledge(t *testing.T) {
	first, other, last := row{Report: "1:2", Slack: 1}, row{Report: "2:3"}, row{Report: "1:2", Slack: 2}
	assert.Equal(t, [][]row{{first, last}, {other}}, alike([]row{first, other, last}))
}

// docs/pricing.md and pricing/finish say so.
func TestTwoOfThreeOfferingsThatComeBackAreLostWithinTheHour(t *testing.T) {
	data := filepath.Join("..", "..", "..", recorded)
	recording, err := readRecording(filepath.Join(data, "availability.csv"), filepath.Join(data, "price.csv"))
	require.NoError(t, err)
	o, err := parse(nil)
	require.NoError(t, err)
	all, err := newTrace(recording, o.zones[0], o.fit.to)
	require.NoError(t, err)
	runs, short := 0, 0
	for _, up := range all.up {
		for tick, since := 1, 0; tick < len(up); tick++ {
			switch {
			case up[tick] && !up[tick-1]:
				since = tick
			case !up[tick] && up[tick-1] && since > 0:
				runs++
				if time.Duration(tick-since)*o.tick < time.Hour {
					short++
				}
			}
		}
	}
	assert.Greater(t, runs, 500)
	assert.InDelta(t, 2./3, float64(short)/float64(runs), .02)
}
