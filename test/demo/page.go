package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/status/view"
)

//go:embed report.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("report").Parse(pageText))

// page is what the template shows.
type page struct {
	*report
	When, Region                         string
	HourSeconds                          float64
	Style                                template.CSS
	Figures                              []figure
	Timeline, Nodes, GPUs, Prices, Spend template.HTML
	Offerings                            []offeringKey
	Colours                              map[string]string
	Kinds                                []kindCount
	Lines                                []line
}

// figure is a number and what it counts, in a few words and in full.
type figure struct {
	Value, Short, Label string
	Good                bool
}

type offeringKey struct {
	Name   string
	Colour template.CSS
	Bought bool
}

type kindCount struct {
	Kind  kind
	Word  string
	Count int
}

// line is an event as the page tells it.
type line struct {
	At     float64
	Kind   kind
	Word   string
	Colour template.CSS
	Text   string
}

// render makes report.html, which needs nothing beside itself.
func (r *report) render() ([]byte, error) {
	p := newPlots(r)
	content := page{
		report: r, When: r.Began.Format("2 January 2006, 15:04"), Region: region, HourSeconds: 3600 / r.Speed,
		Style: template.CSS(view.Style), Figures: r.figures(), Colours: p.colours,
		// Drawn from escaped text above.
		Timeline: template.HTML(p.jobsAndInstances(1180)), Nodes: template.HTML(p.nodes(580, 250)), GPUs: template.HTML(p.gpus(580, 250)),
		Prices: template.HTML(p.prices(580, 250)), Spend: template.HTML(p.spend(580, 250)),
	}
	bought := p.bought()
	for _, name := range p.names {
		content.Offerings = append(content.Offerings, offeringKey{name, template.CSS(p.colours[name]), bought[name]})
	}
	content.Kinds, content.Lines = r.lines()
	var text bytes.Buffer
	err := pageTemplate.Execute(&text, content)
	return text.Bytes(), err
}

// figures are the numbers at the head.
func (r *report) figures() []figure {
	s := r.Summary
	return []figure{
		{fmt.Sprintf("%.0f %%", 100*s.Saved), "saved against on demand", fmt.Sprintf("saved: ¥%.0f instead of ¥%.0f on demand", s.Spot, s.OnDemand), true},
		{seconds(s.PodToPurchase), "pods pending → bought", "from pending pods to the purchase", false},
		{seconds(s.PodToRunning), "pods pending → job runs", "from pending pods to a running job", false},
		{seconds(s.NoticeToTaint), "notice → taint", fmt.Sprintf("from notice to taint, of %.0f s there are", noticePeriod.Seconds()), false},
		{seconds(s.NoticeToEmpty), "notice → node empty", "from notice to an empty node", false},
		{seconds(s.NoticeToWhole), "notice → job whole again", "from notice to a whole job again", false},
		{seconds(s.IdleToRemoval), "idle → given back", fmt.Sprintf("from idle to given back, %.0f s of it the delay", unneeded.Seconds()), false},
		{fmt.Sprintf("%d", s.Instances), "instances", fmt.Sprintf("instances, of which the market took %d", s.Reclaimed), false},
	}
}

// seconds shows what did not happen as a dash.
func seconds(s float64) string {
	if s == 0 {
		return "–"
	}
	if s < .1 {
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}

// accents are the colours of the terminal, for the page.
var accents = map[string]string{
	yellow: "var(--wait)", red: "var(--bad)", green: "var(--good)", blue: "var(--job-2)", purple: "var(--offering-7)",
	cyan: "var(--offering-1)", dim: "var(--muted)",
}

// lines tells the events as the terminal did.
func (r *report) lines() (counts []kindCount, all []line) {
	index := map[kind]int{}
	for _, e := range r.Events {
		look := looks[e.Kind]
		word := strings.ToLower(look.word)
		at, known := index[e.Kind]
		if !known {
			at = len(counts)
			index[e.Kind] = at
			counts = append(counts, kindCount{Kind: e.Kind, Word: word})
		}
		counts[at].Count++
		text := describe(e, 1)
		if e.Kind == scaleUp {
			text += " (" + e.Message + ")" // too long for a terminal
		}
		all = append(all, line{
			At: e.Time.Sub(r.Began).Seconds(), Kind: e.Kind, Word: word, Colour: template.CSS(accents[look.colour]), Text: text,
		})
	}
	return counts, all
}
