package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	knowledge           []knowledge
	// worth is what an hour is worth by which a job with a deadline is over sooner.
	worth              float64
	slack              []float64
	onDemand, jobHours float64
	fit, report        window
	// rolling is how many further windows of equal length inside fit are reported, each fitted on what is before it.
	rolling int
	// jobs is a recording of arrivals; empty for none. valueOfTime is per hour.
	jobs        string
	valueOfTime float64
	starts      int
	// hindsight is how many thresholds are tried for the jobs of each polled row.
	hindsight int
	out       string
}

// window is a range of ticks, without its end.
type window struct{ from, to int }

func (w *window) set(text string) error {
	_, err := fmt.Sscanf(text, "%d:%d", &w.from, &w.to)
	if err == nil && (w.from < 0 || w.to <= w.from) {
		err = errors.New("the end has to come after the first tick")
	}
	return err
}

// length returns how many ticks the window has.
func (w window) length() int { return w.to - w.from }

func (w window) String() string { return fmt.Sprintf("%d:%d", w.from, w.to) }

// setting is what one row is about.
type setting struct {
	fit, report window
	zones       []string
	slack       float64
	protect     time.Duration
	knows       knowledge
}

// settings are all combinations, those of --report first.
func (o options) settings() (all []setting) {
	type fitted struct{ fit, report window }
	windows := []fitted{{o.fit, o.report}}
	for i := range o.rolling {
		length := o.fit.length() / (o.rolling + 1)
		from := o.fit.from + (i+1)*length
		windows = append(windows, fitted{window{o.fit.from, from}, window{from, from + length}})
	}
	for _, w := range windows {
		for _, zones := range o.zones {
			for _, knows := range o.knowledge {
				for _, protect := range o.protect {
					for _, slack := range o.slack {
						all = append(all, setting{w.fit, w.report, zones, slack, protect, knows})
					}
				}
			}
		}
	}
	return all
}

// job returns the job of a row.
func (o options) job(s setting) job {
	restart := int(math.Round(o.restart.Seconds() / o.tick.Seconds()))
	return newJob(int(o.jobHours*float64(time.Hour)/float64(o.tick)), restart, int(s.protect/o.tick), s.slack, o.onDemand)
}

// startsOf returns the ticks at which jobs start, which are spread evenly so that each job can take until its deadline.
func (o options) startsOf(w window, j job) (starts []int, err error) {
	if o.starts < 1 || w.length() < j.deadline {
		return nil, fmt.Errorf("--report, --rolling and --starts: no job of %d ticks fits into ticks %v", j.deadline, w)
	}
	if j.deadline < j.work+j.restart {
		return nil, fmt.Errorf("--slack: nobody is over within %d ticks, since %d of work and a restart of %d are to be done", j.deadline, j.work, j.restart)
	}
	for i := range o.starts {
		starts = append(starts, w.from+i*(w.length()-j.deadline)/max(1, o.starts-1))
	}
	return starts, nil
}

// poll returns how many ticks there are between two looks at the market.
func (o options) poll() int { return max(1, int(o.observe/o.tick)) }

// parse reads the command line.
func parse(arguments []string) (o options, err error) {
	o = options{
		zones: [][]string{
			recordedZones("us-east-1", "acdf", "us-east-2", "ab", "us-west-2", "abc"), recordedZones("us-west-2", "abc"),
			recordedZones("us-east-1", "acdf", "us-east-2", "ab"), recordedZones("us-east-1", "acdf"),
		},
		slack: []float64{1.05, 1.15, 1.33, 2}, protect: []time.Duration{0}, knowledge: []knowledge{polled},
		fit: window{0, 8862}, report: window{8862, 13292},
	}
	flags := flag.NewFlagSet("market", flag.ContinueOnError)
	flags.StringVar(&o.availability, "availability", filepath.Join(recorded, "availability.csv"), "file of zone,tick,available")
	flags.StringVar(&o.price, "price", filepath.Join(recorded, "price.csv"), "file of zone,tick,usd_per_hour")
	flags.DurationVar(&o.tick, "tick", 195*time.Second, "length of a tick")
	flags.Float64Var(&o.onDemand, "on-demand", 3.06, "on-demand price per hour")
	flags.Float64Var(&o.jobHours, "job-hours", 24, "useful work of a job")
	flags.DurationVar(&o.restart, "restart", 13*time.Minute, "how long an instance takes before it does useful work")
	flags.DurationVar(&o.observe, "observe", 10*time.Minute, "how often the market is looked at, in whole ticks")
	flags.IntVar(&o.starts, "starts", 100, "number of jobs")
	flags.IntVar(&o.hindsight, "hindsight", 0, "how many thresholds to try for the jobs of each polled row, of which the cheapest count, such as 1500; 0 for none")
	flags.StringVar(&o.out, "json", filepath.Join("out", "bench", "market.json"), "file to write; the plot is written beside it")
	flags.StringVar(&o.jobs, "jobs", "test/alisim/market/data/jobs/gavel-msr.csv", "file of kind,steps,second,GPUs: jobs without deadlines that arrive during --report; empty for none")
	flags.Float64Var(&o.valueOfTime, "value-of-time", 3.06, "what it is worth per hour that such a job is over sooner")
	flags.Func("zones", "zones, separated by commas (default four sets of the recording)", func(text string) error {
		o.zones = [][]string{strings.Split(text, ",")}
		return nil
	})
	listFlag(flags, &o.slack, "slack", "deadlines in multiples of the work, separated by commas", func(field string) (float64, error) {
		return strconv.ParseFloat(field, 64)
	})
	listFlag(flags, &o.protect, "protect", "for how long an instance is not reclaimed, separated by commas, such as 0,1h", time.ParseDuration)
	listFlag(flags, &o.knowledge, "knowledge", fmt.Sprintf("what our policy knows, separated by commas: %v", allKnowledge), parseKnowledge)
	flags.Float64Var(&o.worth, "deadline-value-of-time", 0, "what it is worth per hour to our policy that a job with a deadline is over sooner")
	flags.Func("fit", "ticks of which the market was seen before the first job, first:end (default 0:8862)", o.fit.set)
	flags.Func("report", "ticks of the jobs, first:end (default 8862:13292)", o.report.set)
	flags.IntVar(&o.rolling, "rolling", 0, "how many further windows of equal length inside --fit to report, each fitted on what is before it")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if o.fit.to > o.report.from+1 { // both ways of writing the last tick are in use
		return o, fmt.Errorf("--fit ends at tick %d, after --report begins at %d", o.fit.to, o.report.from)
	}
	if o.tick <= 0 || o.rolling < 0 {
		return o, errors.New("--tick has to be positive, and --rolling not negative")
	}
	return o, nil
}

// listFlag adds a flag of several values.
func listFlag[T any](flags *flag.FlagSet, values *[]T, name, usage string, parse func(string) (T, error)) {
	flags.Func(name, usage, func(text string) error {
		*values = nil
		for field := range strings.SplitSeq(text, ",") {
			value, err := parse(field)
			if err != nil {
				return err
			}
			*values = append(*values, value)
		}
		return nil
	})
}

func parseKnowledge(text string) (knowledge, error) {
	if !slices.Contains(allKnowledge, knowledge(text)) {
		return "", fmt.Errorf("%q is none of %v", text, allKnowledge)
	}
	return knowledge(text), nil
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
