// Command market measures, on a recording of a spot market, what an hour of useful work costs a job that has to be over in time: by the policy
// of this project (pricing/finish) and by others that are in use, beside the least that it could cost who knows the whole recording.
//
//	go run ./test/bench/market --zones us-west-2a,us-west-2b,us-west-2c --report 8862:13292 --slack 1.05,1.15
//
// Without --zones it takes four sets of zones of the recording in test/alisim/market/data/v100-9zone. Starts are spread evenly over the
// ticks of --report, so that each job could take until its deadline within them. It prints a table, and writes it to --json.
//
// The policy of this project looks at the market every --observe. Each day it learns from all that it has seen before. The others see the
// market in every tick.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// recorded is where the recording is that is taken unless another one is given.
const recorded = "test/alisim/market/data/v100-9zone"

// options are what the user chose.
type options struct {
	availability, price string
	zones               [][]string
	tick, restart       time.Duration
	observe             time.Duration
	protect             []time.Duration
	slack               []float64
	onDemand, jobHours  float64
	from, to, starts    int
	out                 string
}

// row is one setting. Money is per hour of useful work, the mean over all starts.
type row struct {
	Zones           []string `json:"zones"`
	Slack           float64  `json:"slack"`
	Protect         string   `json:"protect"`
	Omniscient      float64  `json:"omniscient"`
	UniformProgress float64  `json:"uniform_progress"`
	Greedy          float64  `json:"greedy"`
	OnDemand        float64  `json:"on_demand"`
	Ours            float64  `json:"ours"`
	// GapClosed is the part of the difference between the better of uniform progress and greedy and the omniscient that ours saves.
	GapClosed float64 `json:"gap_closed"`
	// Misses counts deadlines that ours missed though the omniscient kept them, BaselineMisses the same of the baselines.
	Misses         int `json:"misses"`
	BaselineMisses int `json:"baseline_misses"`
}

func (r row) baseline() float64 { return min(r.UniformProgress, r.Greedy) }

func main() {
	if err := measure(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "market:", err)
		os.Exit(1)
	}
}

func measure(arguments []string, out io.Writer) error {
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	recording, err := readRecording(o.availability, o.price)
	if err != nil {
		return err
	}
	var rows []row
	for _, zones := range o.zones {
		t, err := newTrace(recording, zones, o.to)
		if err != nil {
			return err
		}
		for _, protect := range o.protect {
			for _, slack := range o.slack {
				j := o.job(slack, protect)
				if o.starts < 1 || o.from < 0 || o.to-o.from < j.deadline {
					return fmt.Errorf("--report and --starts: no job of %d ticks fits into ticks %d to %d", j.deadline, o.from, o.to)
				}
				if j.deadline < j.work+j.restart {
					return fmt.Errorf("--slack: nobody is over within %.2f times the work, since a restart takes %v", slack, o.restart)
				}
				r := rowOf(newSighted(t, j, o.poll(), o.tick), j, o.startsOf(j))
				r.Slack, r.Protect = slack, protect.String()
				rows = append(rows, r)
			}
		}
	}
	if err := printTable(out, rows); err != nil {
		return err
	}
	return write(o.out, rows)
}

// startsOf returns the ticks at which jobs start.
func (o options) startsOf(j job) (starts []int) {
	for i := range o.starts {
		starts = append(starts, o.from+i*(o.to-j.deadline-o.from)/max(1, o.starts-1))
	}
	return starts
}

// job returns the job of a row.
func (o options) job(slack float64, protect time.Duration) job {
	restart := int(math.Round(o.restart.Seconds() / o.tick.Seconds()))
	return newJob(int(o.jobHours*float64(time.Hour)/float64(o.tick)), restart, int(protect/o.tick), slack, o.onDemand)
}

// poll returns how many ticks there are between two looks at the market.
func (o options) poll() int { return max(1, int(o.observe/o.tick)) }

func rowOf(s *sighted, j job, starts []int) row {
	t := s.trace
	r := row{Zones: t.zones}
	each := 1 / float64(len(starts))
	for _, start := range starts {
		least := omniscient(t, start, j) / float64(j.work)
		r.Omniscient += each * least
		for _, runner := range []struct {
			policy policy
			sum    *float64
			misses *int
		}{
			{newOurs(s, j, start), &r.Ours, &r.Misses}, {uniformProgress{j}, &r.UniformProgress, &r.BaselineMisses},
			{greedy{j}, &r.Greedy, &r.BaselineMisses}, {onDemandOnly{}, &r.OnDemand, &r.BaselineMisses},
		} {
			result := run(t, start, j, runner.policy)
			*runner.sum += each * result.perUsefulHour(j)
			if result.missed(j) && !math.IsInf(least, 1) {
				*runner.misses++
			}
		}
	}
	r.GapClosed = (r.baseline() - r.Ours) / (r.baseline() - r.Omniscient)
	return r
}

func printTable(out io.Writer, rows []row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "zones\tslack\tprotected\tomniscient\tuniform progress\tgreedy\ton-demand\tours\tgap\tgap closed\tmisses\tof baselines\t")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%.2f\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f%%\t%.0f%%\t%d\t%d\t\n",
			strings.Join(r.Zones, ","), r.Slack, r.Protect, r.Omniscient, r.UniformProgress, r.Greedy, r.OnDemand, r.Ours,
			100*(r.baseline()/r.Omniscient-1), 100*r.GapClosed, r.Misses, r.BaselineMisses)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, summaryOf(rows))
	return err
}

// leastGap is how much dearer the better baseline has to be than the omniscient for a row to count in the mean.
const leastGap = .05

// summaryOf returns a sentence about the rows whose gap is worth the name.
func summaryOf(rows []row) string {
	sum, worst, count := 0.0, math.Inf(1), 0
	for _, r := range rows {
		if r.baseline() > (1+leastGap)*r.Omniscient {
			sum, worst, count = sum+r.GapClosed, min(worst, r.GapClosed), count+1
		}
	}
	if count == 0 {
		return "In no row is the better baseline more than 5 % dearer than the omniscient."
	}
	return fmt.Sprintf("Gap closed in the %d rows in which it is over 5 %%: %.0f %% in the mean, %.0f %% in the worst.", count, 100*sum/float64(count), 100*worst)
}

func write(path string, rows []row) error {
	text, err := json.MarshalIndent(map[string]any{"rows": rows}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// parse reads the command line.
func parse(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("market", flag.ContinueOnError)
	flags.StringVar(&o.availability, "availability", filepath.Join(recorded, "availability.csv"), "file of zone,tick,available")
	flags.StringVar(&o.price, "price", filepath.Join(recorded, "price.csv"), "file of zone,tick,usd_per_hour")
	flags.DurationVar(&o.tick, "tick", 195*time.Second, "length of a tick")
	flags.Float64Var(&o.onDemand, "on-demand", 3.06, "on-demand price per hour")
	flags.Float64Var(&o.jobHours, "job-hours", 24, "useful work of a job")
	flags.DurationVar(&o.restart, "restart", 13*time.Minute, "how long an instance takes before it does useful work")
	flags.DurationVar(&o.observe, "observe", 10*time.Minute, "how often the market is looked at, in whole ticks")
	flags.IntVar(&o.starts, "starts", 100, "number of jobs")
	flags.StringVar(&o.out, "json", filepath.Join("out", "bench", "market.json"), "file to write")
	o.zones = [][]string{
		recordedZones("us-east-1", "acdf", "us-east-2", "ab", "us-west-2", "abc"), recordedZones("us-west-2", "abc"),
		recordedZones("us-east-1", "acdf", "us-east-2", "ab"), recordedZones("us-east-1", "acdf"),
	}
	flags.Func("zones", "zones, separated by commas", func(text string) error {
		o.zones = [][]string{strings.Split(text, ",")}
		return nil
	})
	o.slack = []float64{1.05, 1.15, 1.33, 2}
	flags.Func("slack", "deadlines in multiples of the work, separated by commas", func(text string) (err error) {
		o.slack, err = list(text, func(field string) (float64, error) { return strconv.ParseFloat(field, 64) })
		return err
	})
	o.protect = []time.Duration{0}
	flags.Func("protect", "for how long an instance is not reclaimed, separated by commas (0 or 1h)", func(text string) (err error) {
		o.protect, err = list(text, time.ParseDuration)
		return err
	})
	o.from, o.to = 8862, 13292
	flags.Func("report", "ticks of the jobs, first:end", func(text string) error {
		_, err := fmt.Sscanf(text, "%d:%d", &o.from, &o.to)
		return err
	})
	return o, flags.Parse(arguments)
}

// recordedZones takes regions and the letters of their zones.
func recordedZones(regionsAndZones ...string) (zones []string) {
	for i := 0; i < len(regionsAndZones); i += 2 {
		for _, zone := range regionsAndZones[i+1] {
			zones = append(zones, regionsAndZones[i]+string(zone))
		}
	}
	return zones
}

func list[T any](text string, parse func(string) (T, error)) (values []T, err error) {
	for field := range strings.SplitSeq(text, ",") {
		value, err := parse(field)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}
