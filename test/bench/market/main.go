// Command market measures, on a recording of a spot market, what an hour of useful work costs a job that has to be over in time: by the policy
// of this project (pricing/deadline) and by others that are in use, beside the least that it could cost who knows the whole recording.
//
//	go run ./test/bench/market --zones us-west-2a,us-west-2b,us-west-2c --fit 0:8862 --report 8862:13292 --slack 1.05,1.15
//
// Without --zones it takes four sets of zones of the recording in test/alisim/market/data/v100-9zone. It prints a table, writes it to
// --json, and draws it beside that.
//
// With --rolling it also measures windows inside --fit. In each of them the policy knows what came before. It may be developed on these windows,
// never on that of --report.
//
// It also runs --jobs, which have no deadlines, on the same zones, by several ways to remember what was refused and lost.
//
// The policy of this project sees of the market what --knowledge says: from the beginning of --fit on, it looks every --observe, and every six
// hours learns from all that it has seen before, during --report too. The others see the market in every tick.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"gpu-spot-autoscaler/test/alisim/market"
)

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
	rows, err := o.rows(recording)
	if err != nil {
		return err
	}
	if err := printTable(out, rows); err != nil {
		return err
	}
	streams, err := o.streams(recording)
	if err != nil {
		return err
	}
	if err := printStreams(out, streams, o.valueOfTime); err != nil {
		return err
	}
	return write(o.out, rows, streams)
}

// rows measures all settings, as many at a time as there are cores.
func (o options) rows(recording market.Recording) ([]row, error) {
	settings := o.settings()
	rows := make([]row, len(settings))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range settings {
		group.Go(func() (err error) {
			rows[i], err = o.row(recording, s)
			return err
		})
	}
	return rows, group.Wait()
}

func (o options) row(recording market.Recording, s setting) (r row, err error) {
	t, err := newTrace(recording, s.zones, s.report.to)
	if err != nil {
		return r, err
	}
	j := o.job(s)
	starts, err := o.startsOf(s.report, j)
	if err != nil {
		return r, err
	}
	market := newSighted(t, j, o, s)
	r = rowOf(market, j, starts)
	if o.hindsight > 0 && s.knows == polled {
		r.Hindsight = inHindsight(market, j, starts, o.hindsight)
	}
	r.Fit, r.Report, r.Slack, r.Protect, r.Observe, r.Knowledge = s.fit.String(), s.report.String(), s.slack, s.protect.String(), o.observe.String(), s.knows
	r.ValueOfTime = o.worth
	return r, nil
}

// streams runs the jobs without deadlines in each set of zones, by each policy.
func (o options) streams(recording market.Recording) (rows []streamRow, err error) {
	if o.jobs == "" {
		return nil, nil
	}
	hours := o.tick.Hours()
	jobs, err := readStream(o.jobs, o.report, 1/hours)
	if err != nil {
		return nil, err
	}
	for _, zones := range o.zones {
		t, err := newTrace(recording, zones, o.report.to)
		if err != nil {
			return nil, err
		}
		all := choosers(zones, o)
		for _, name := range chooserNames {
			row := streamRow{Zones: zones, Policy: name}
			runStream(t, jobs, o.job(setting{}).restart, all[name], &row, o.valueOfTime, hours)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func printStreams(out io.Writer, rows []streamRow, valueOfTime float64) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nJobs without deadlines, on spot only; nobody sees what is up. An hour sooner is worth %.2f.\n", valueOfTime)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "zones\tpolicy\tcost\twith time\tp50\tp95\trefused per job\tlost per job\t")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%.1f\t\n",
			strings.Join(r.Zones, ","), r.Policy, r.Cost, r.Total, r.CompletionP50, r.CompletionP95, r.Refused, r.Lost)
	}
	return table.Flush()
}

func printTable(out io.Writer, rows []row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ticks\tzones\tslack\tprotected\tknowledge\tomniscient\tuniform progress\tgreedy\ton-demand\tours\tgap\tgap closed\t±\tp95\tgreedy's\tmisses\tof baselines\t")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%s\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f%%\t%.0f%%\t%.0f\t%.2f\t%.2f\t%d\t%d\t\n",
			r.Report, strings.Join(r.Zones, ","), r.Slack, r.Protect, r.Knowledge, r.Omniscient, r.UniformProgress, r.Greedy, r.OnDemand, r.Ours,
			100*(r.baseline()/r.Omniscient-1), 100*r.GapClosed, 100*r.GapError, r.CompletionOurs, r.CompletionGreedy, r.Misses, r.BaselineMisses)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, some := range alike(rows) {
		if _, err := fmt.Fprintf(out, "\nTicks %s, protected for %s, %s\n", some[0].Report, some[0].Protect, some[0].Knowledge); err != nil {
			return err
		}
		for _, sentence := range summaryOf(some) {
			if _, err := fmt.Fprintln(out, "  "+sentence); err != nil {
				return err
			}
		}
	}
	return nil
}

// alike returns the rows that differ only in their zones and slack, together, in the order of the first of each.
func alike(rows []row) (groups [][]row) {
	for _, r := range rows {
		i := slices.IndexFunc(groups, func(some []row) bool {
			return some[0].Report == r.Report && some[0].Protect == r.Protect && some[0].Knowledge == r.Knowledge
		})
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

const (
	// leastGap is how much dearer the better baseline has to be than the omniscient for a row to count in the mean.
	leastGap = .05
	// completionMargin is by how much the completion time of ours may be longer than greedy's to count as equal, in multiples of the work.
	completionMargin = .02
)

// summaryOf returns sentences about all rows.
func summaryOf(rows []row) []string {
	sum, worst, count, early, dearest, cost, hindsight := 0.0, math.Inf(1), 0, 0, math.Inf(-1), 0.0, 0.0
	for _, r := range rows {
		dearest, cost = max(dearest, r.Ours/r.baseline()-1), cost+r.Ours/float64(len(rows))
		if r.CompletionOurs <= r.CompletionGreedy+completionMargin {
			early++
		}
		if r.hasGap() {
			sum, worst, count, hindsight = sum+r.GapClosed, min(worst, r.GapClosed), count+1, hindsight+r.hindsightClosed()
		}
	}
	gap := "In no row is the better baseline more than 5 % dearer than the omniscient."
	if count > 0 {
		gap = fmt.Sprintf("Gap closed in the %d rows in which it is over 5 %%: %.0f %% in the mean, %.0f %% in the worst.", count, 100*sum/float64(count), 100*worst)
	}
	if count > 0 && rows[0].Hindsight > 0 {
		gap += fmt.Sprintf(" Thresholds chosen in hindsight: %.0f %%.", 100*hindsight/float64(count))
	}
	return []string{
		gap, fmt.Sprintf("Ours costs %.4f in the mean of all rows, and %+.1f %% against the better baseline in the worst.", cost, 100*dearest),
		fmt.Sprintf("In %d of %d rows, 95 %% of the jobs are over no later than greedy's, or later by less than %.2f times their work.", early, len(rows), completionMargin),
	}
}

func write(path string, rows []row, streams []streamRow) error {
	text, err := json.MarshalIndent(map[string]any{"rows": rows, "streams": streams}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return err
	}
	reported := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.Report != rows[0].Report })
	return os.WriteFile(strings.TrimSuffix(path, filepath.Ext(path))+".svg", []byte(plot(reported)), 0o644)
}
