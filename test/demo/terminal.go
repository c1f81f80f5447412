package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// terminal tells whoever watches what happens: plain lines, or colours and a line of figures at the bottom where the
// output is a terminal.
type terminal struct {
	out    io.Writer
	colour bool
	began  time.Time
	// status is the line at the bottom, in whose place the next one goes.
	status bool
}

func newTerminal(out *os.File) *terminal {
	info, err := out.Stat()
	isTerminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &terminal{out: out, colour: isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", began: time.Now()}
}

// Colours of the terminal by their codes.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	purple = "35"
	cyan   = "36"
)

// looks are how a kind is shown: a word of at most 14 letters and its colour.
var looks = map[kind]struct{ word, colour string }{
	podsPending:    {"pods pending", yellow},
	offeringChosen: {"chosen", dim},
	scaleUp:        {"scale up", blue},
	purchaseFailed: {"sold out", red},
	nodeReady:      {"node ready", cyan},
	podsRunning:    {"pods running", green},
	notice:         {"NOTICE", red},
	tainted:        {"tainted", purple},
	warned:         {"warned", purple},
	checkpointed:   {"checkpointed", green},
	drained:        {"drained", purple},
	podsMoved:      {"pods moved", green},
	jobDone:        {"job done", green},
	nodeIdle:       {"idle", dim},
	scaleDown:      {"scale down", blue},
	released:       {"released", dim},
}

func (t *terminal) paint(colour, text string) string {
	if !t.colour || colour == plain {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (t *terminal) line(format string, args ...any) {
	t.clear()
	fmt.Fprintf(t.out, format+"\n", args...)
}

func (t *terminal) clear() {
	if t.status {
		fmt.Fprint(t.out, "\r\x1b[K")
		t.status = false
	}
}

// heading begins a phase.
func (t *terminal) heading(title string) { t.line("\n%s", t.paint(bold, title)) }

// printf prints a line that is no event.
func (t *terminal) printf(format string, args ...any) {
	t.line("%s  %s", t.clock(time.Now()), t.paint(dim, fmt.Sprintf(format, args...)))
}

func (t *terminal) clock(at time.Time) string {
	return t.paint(dim, fmt.Sprintf("%6.1fs", at.Sub(t.began).Seconds()))
}

// print prints events, those together that differ in the node alone.
func (t *terminal) print(events []*event) {
	for _, group := range grouped(events) {
		e := group[0]
		look := looks[e.Kind]
		t.line("%s  %s %s", t.clock(e.Time), t.paint(look.colour, fmt.Sprintf("%-14s", look.word)), describe(e, len(group)))
	}
}

// grouped gathers events of one kind about nodes of one offering that work for one job.
func grouped(events []*event) (groups [][]*event) {
	index := map[string]int{}
	for _, e := range events {
		key := fmt.Sprintf("%s/%s/%s/%s", e.Kind, e.Job, e.Offering, e.Deadline)
		at, known := index[key]
		if !known || e.Instance == "" {
			index[key] = len(groups)
			groups = append(groups, []*event{e})
			continue
		}
		groups[at] = append(groups[at], e)
	}
	return groups
}

// describe is a line about n like events.
func describe(e *event, n int) string {
	nodes := fmt.Sprintf("%d nodes of %s", n, e.Offering)
	if n == 1 {
		nodes = cmp.Or(e.Node, e.Instance) + ", " + e.Offering
	}
	switch e.Kind {
	case podsPending:
		return fmt.Sprintf("%s: %s", e.Job, plural(e.Count, "pod waits", "pods wait"))
	case podsRunning:
		return fmt.Sprintf("%s: %s", e.Job, plural(e.Count, "pod runs", "pods run"))
	case podsMoved:
		return fmt.Sprintf("%s is whole again: %d pods run", e.Job, e.Count)
	case offeringChosen, purchaseFailed:
		return e.Message
	case scaleUp:
		text := fmt.Sprintf("%d × %s at ¥%.3f an hour each", e.Count, e.Offering, e.Price)
		if e.Job != "" {
			text = e.Job + ": " + text
		}
		return text
	case notice:
		how := "the market takes back"
		if e.Forced {
			how = "forced by the demo:"
		}
		return fmt.Sprintf("%s %s%s, released in %.0fs", how, nodes, working(e.Job), e.Deadline.Sub(e.Time).Seconds())
	case warned:
		return fmt.Sprintf("%s: asked for a checkpoint, %.0fs before the release of %s", e.Job, e.Deadline.Sub(e.Time).Seconds(), nodes)
	case checkpointed:
		return fmt.Sprintf("%s: says it is saved, %.0fs before the release of %s", e.Job, e.Deadline.Sub(e.Time).Seconds(), nodes)
	case tainted, drained:
		return fmt.Sprintf("%s, %.0fs before the release", nodes, e.Deadline.Sub(e.Time).Seconds())
	case jobDone:
		return e.Job
	}
	return nodes
}

func working(job string) string {
	if job == "" {
		return ""
	}
	return " from " + job
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// figures rewrites the line at the bottom of a terminal, which must fit into 80 columns.
func (t *terminal) figures(s sample) {
	if !t.colour {
		return
	}
	t.clear()
	nodes, gpus := 0, 0
	for _, n := range s.Nodes {
		nodes += n
	}
	for _, n := range s.GPUs {
		gpus += n
	}
	bar := strings.Repeat("▮", min(s.Used, 20)) + strings.Repeat("▯", max(0, min(gpus, 20)-s.Used))
	fmt.Fprint(t.out, t.paint(dim, fmt.Sprintf("%6.1fs  %d nodes, %d/%d GPUs at work %s ¥%.0f, on demand ¥%.0f",
		time.Since(t.began).Seconds(), nodes, s.Used, gpus, bar, s.Spot, s.OnDemand)))
	t.status = true
}

// conclude prints the figures of the report and where it is.
func (t *terminal) conclude(r *report, out string) {
	s := r.Summary
	t.heading("In figures")
	for _, f := range []struct{ label, value string }{
		{"pending pod to purchase", seconds(s.PodToPurchase)},
		{"pending pod to running job", seconds(s.PodToRunning)},
		{"notice to taint", seconds(s.NoticeToTaint)},
		{"notice to checkpoint", seconds(s.NoticeToCheckpoint)},
		{"notice to empty node", seconds(s.NoticeToEmpty)},
		{"notice to whole job", seconds(s.NoticeToWhole)},
		{"idle to given back", seconds(s.IdleToRemoval)},
		{"instances bought", fmt.Sprintf("%d, of which the market took %d", s.Instances, s.Reclaimed)},
		{"spent", fmt.Sprintf("¥%.2f for %.1f GPU-hours; on demand ¥%.2f, saved %.0f %%", s.Spot, s.GPUHours, s.OnDemand, 100*s.Saved)},
		{"calls to the cloud", fmt.Sprintf("%d", s.Calls)},
	} {
		t.line("  %s %s", t.paint(dim, fmt.Sprintf("%-28s", f.label)), f.value)
	}
	t.line("\n  %s/report.html  %s/report.json  logs in %s/state", out, out, out)
}
