package main

import (
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/demo/chart"
)

// plots draws the report.
type plots struct {
	*report
	seconds float64
	// names are the offerings in a fixed order, colours their CSS variables.
	names   []string
	colours map[string]string
}

func newPlots(r *report) *plots {
	p := &plots{report: r, seconds: r.Summary.Seconds, colours: map[string]string{}}
	for i, o := range offerings() {
		p.names = append(p.names, o.String())
		p.colours[o.String()] = fmt.Sprintf("var(--offering-%d)", i+1)
	}
	return p
}

func jobColour(name string) string {
	for i, j := range jobs() {
		if j.Name == name {
			return fmt.Sprintf("var(--job-%d)", i+1)
		}
	}
	return "var(--idle)"
}

// at is a moment in seconds since the world began; what has not happened is the end.
func (p *plots) at(t time.Time) float64 {
	if t.IsZero() {
		return p.seconds
	}
	return t.Sub(p.Began).Seconds()
}

// reclaims marks the first notice of each offering.
func (p *plots) reclaims(c *chart.Chart) {
	marked := map[string]bool{}
	for _, l := range p.Instances {
		if !l.Notice.IsZero() && !marked[l.Offering] {
			marked[l.Offering] = true
			c.Mark(p.at(l.Notice), "notice")
		}
	}
}

// jobsAndInstances is the chart of jobs and instances: what waited, ran, was reclaiming and idled when.
func (p *plots) jobsAndInstances(width float64) string {
	const strip, row, gap = 34., 11., 3.
	lives := p.byOffering()
	height := 40 + float64(len(p.Jobs))*(strip+10) + 18 + float64(len(lives))*(row+gap) + 30
	c := chart.New(width, height, p.seconds, 1)
	c.Left, c.Top = 205, 8
	c.Add(`%s`, hatches)
	c.TimeAxis()
	y := c.Top + 6
	for _, job := range p.Jobs {
		p.jobStrip(c, job, y, strip)
		y += strip + 10
	}
	y += 14
	previous := ""
	for _, l := range lives {
		if l.Offering != previous {
			c.Text(c.Left-10, y+row-1.5, "label", "end", l.Offering)
			previous = l.Offering
		}
		p.instanceRow(c, l, y, row)
		y += row + gap
	}
	p.reclaims(c)
	return c.SVG("timeline")
}

// byOffering orders the instances by offering, then by age.
func (p *plots) byOffering() []*instanceRecord {
	lives := slices.Clone(p.Instances)
	slices.SortStableFunc(lives, func(a, b *instanceRecord) int {
		return slices.Index(p.names, a.Offering) - slices.Index(p.names, b.Offering)
	})
	return lives
}

// hatches are the patterns of what waits and of what is reclaiming.
const hatches = `<defs>
<pattern id="waits" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" style="fill:var(--wait)" opacity=".25"/><rect width="2" height="5" style="fill:var(--wait)"/></pattern>
<pattern id="boots" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="4" style="fill:var(--idle)" opacity=".35"/><rect width="1.5" height="4" style="fill:var(--muted)" opacity=".55"/></pattern>
<pattern id="doom" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" style="fill:var(--bad)"/></pattern>
</defs>`

// jobStrip shows the pods of a job over time: running ones below, then those that have to move, then those that wait.
func (p *plots) jobStrip(c *chart.Chart, job *jobRecord, y, height float64) {
	c.Text(c.Left-10, y+height/2-1, "name", "end", job.Name)
	c.Text(c.Left-10, y+height/2+12, "label", "end", job.Title)
	c.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="lane"/>`, c.Left, y, c.Width-c.Left-c.Right, height)
	for i, s := range job.States {
		end := p.seconds
		if i+1 < len(job.States) {
			end = p.at(job.States[i+1].At)
		}
		title := fmt.Sprintf("%s: %d run, %d wait, %d have to move", job.Name, s.Running, s.Pending, s.Reclaiming)
		unit, below := height/float64(job.Pods), 0
		for _, part := range []struct {
			pods   int
			colour string
		}{{s.Running, jobColour(job.Name)}, {s.Reclaiming, "url(#doom)"}, {s.Pending, "url(#waits)"}} {
			n := min(part.pods, job.Pods-below)
			below += n
			c.Bar(p.at(s.At), end, y+height-unit*float64(below), unit*float64(n), "strip", part.colour, title)
		}
	}
	if !job.Done.IsZero() {
		c.Text(c.X(p.at(job.Done))+5, y+height/2+4, "done", "start", "✓ done")
	}
}

// instanceRow shows an instance from its creation to its release.
func (p *plots) instanceRow(c *chart.Chart, l *instanceRecord, y, height float64) {
	title := l.Instance + ", " + l.Offering
	c.Bar(p.at(l.Created), p.at(first2(l.Ready, l.Released)), y, height, "bar", "url(#boots)", title+": boots")
	if !l.Ready.IsZero() {
		c.Bar(p.at(l.Ready), p.at(l.Released), y, height, "bar", "var(--idle)", title+": idle")
	}
	for _, w := range l.Work {
		c.Bar(p.at(w.From), p.at(first2(w.To, l.Released)), y, height, "bar", jobColour(w.Job), title+": "+w.Job)
	}
	if !l.Notice.IsZero() {
		c.Bar(p.at(l.Notice), p.at(l.Released), y+height-4, 4, "bar", "url(#doom)", title+": will be reclaimed")
		x := c.X(p.at(l.Notice))
		c.Add(`<path d="M%.1f %.1fl-5 -8h10Z" style="fill:var(--bad)"><title>notice</title></path>`, x, y+height/2)
	}
	if !l.Removed.IsZero() {
		x := c.X(p.at(l.Removed))
		c.Add(`<path d="M%.1f %.1fv9l5.5 -4.5Z" style="fill:var(--text)"><title>given back</title></path>`, x, y+height/2-4.5)
	}
}

func first2(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// stacked shows counts per offering, one upon the other.
func (p *plots) stacked(name string, width, height float64, counts func(sample) map[string]int, over func(sample) int) string {
	most := 1
	for _, s := range p.Samples {
		sum := over(s)
		total := 0
		for _, n := range counts(s) {
			total += n
		}
		most = max(most, sum, total)
	}
	c := chart.New(width, height, p.seconds, float64(most)*1.08)
	c.TimeAxis()
	c.ValueAxis("")
	lower := make([]chart.Point, len(p.Samples))
	for i, s := range p.Samples {
		lower[i] = chart.Point{At: s.At, Value: 0}
	}
	for _, offering := range p.names {
		upper := make([]chart.Point, len(p.Samples))
		for i, s := range p.Samples {
			upper[i] = chart.Point{At: s.At, Value: lower[i].Value + float64(counts(s)[offering])}
		}
		if !slices.Equal(lower, upper) {
			c.Area(lower, upper, p.colours[offering])
		}
		lower = upper
	}
	line := make([]chart.Point, len(p.Samples))
	for i, s := range p.Samples {
		line[i] = chart.Point{At: s.At, Value: float64(over(s))}
	}
	c.Line(line, "over", "var(--text)")
	p.reclaims(c)
	return c.SVG(name)
}

// nodes shows ready nodes; the line counts pods that wait.
func (p *plots) nodes(width, height float64) string {
	return p.stacked("nodes", width, height, func(s sample) map[string]int { return s.Nodes }, func(s sample) int { return s.Pending })
}

// gpus shows GPUs of ready nodes; the line counts those whose pods run.
func (p *plots) gpus(width, height float64) string {
	return p.stacked("gpus", width, height, func(s sample) map[string]int { return s.GPUs }, func(s sample) int { return s.Used })
}

// prices shows what a GPU-hour costs in each offering, with gaps where it is sold out.
func (p *plots) prices(width, height float64) string {
	most := 0.
	for _, s := range p.Samples {
		for _, price := range s.Price {
			most = max(most, price)
		}
	}
	c := chart.New(width, height, p.seconds, most*1.08)
	c.TimeAxis()
	c.ValueAxis("¥")
	bought := p.bought()
	for _, offering := range p.names {
		class := "price"
		if bought[offering] {
			class = "price bought"
		}
		for _, stretch := range p.stretches(offering) {
			c.Line(stretch, class, p.colours[offering])
		}
	}
	p.reclaims(c)
	return c.SVG("prices")
}

// bought are the offerings of which there was an instance.
func (p *plots) bought() map[string]bool {
	bought := map[string]bool{}
	for _, l := range p.Instances {
		bought[l.Offering] = true
	}
	return bought
}

// stretches are the times in which an offering was sold.
func (p *plots) stretches(offering string) (all [][]chart.Point) {
	var current []chart.Point
	for _, s := range p.Samples {
		price, sold := s.Price[offering]
		if sold {
			current = append(current, chart.Point{At: s.At, Value: price})
			continue
		}
		if len(current) > 0 {
			all = append(all, append(current, chart.Point{At: s.At, Value: current[len(current)-1].Value}))
			current = nil
		}
	}
	if len(current) > 0 {
		all = append(all, current)
	}
	return all
}

// spend shows what was spent, and what it would have been on demand.
func (p *plots) spend(width, height float64) string {
	c := chart.New(width, height, p.seconds, p.Summary.OnDemand*1.1)
	c.TimeAxis()
	c.ValueAxis("¥")
	var spot, onDemand []chart.Point
	for _, s := range p.Samples {
		spot, onDemand = append(spot, chart.Point{At: s.At, Value: s.Spot}), append(onDemand, chart.Point{At: s.At, Value: s.OnDemand})
	}
	c.Add(`<path d="%s" class="saving"/>`, c.Between(spot, onDemand))
	c.Polyline(onDemand, "spend", "var(--muted)")
	c.Polyline(spot, "spend", "var(--good)")
	if len(spot) > 0 {
		end := c.Width - c.Right - 4
		c.Text(end, c.Y(p.Summary.OnDemand)-6, "name", "end", fmt.Sprintf("on demand ¥%.0f", p.Summary.OnDemand))
		c.Text(end, c.Y(p.Summary.Spot)-6, "good", "end", fmt.Sprintf("spot ¥%.0f", p.Summary.Spot))
		c.Text(end, c.Y((p.Summary.Spot+p.Summary.OnDemand)/2)+4, "saved", "end", fmt.Sprintf("%.0f %% saved", 100*p.Summary.Saved))
	}
	p.reclaims(c)
	return c.SVG("spend")
}
