package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart draws SVG over time. Colours are CSS variables, so that the page or the picture around it decides on light and
// dark.
type chart struct {
	width, height            float64
	left, right, top, bottom float64 // margins
	seconds                  float64 // at the right end
	most                     float64 // at the top end
	body                     strings.Builder
}

// newChart leaves room for the axes.
func newChart(width, height, seconds, most float64) *chart {
	return &chart{width: width, height: height, left: 46, right: 12, top: 12, bottom: 24, seconds: max(seconds, 1), most: max(most, 1e-9)}
}

func (c *chart) x(seconds float64) float64 {
	return c.left + min(max(seconds, 0), c.seconds)/c.seconds*(c.width-c.left-c.right)
}

func (c *chart) y(value float64) float64 {
	return c.height - c.bottom - min(max(value, 0), c.most)/c.most*(c.height-c.top-c.bottom)
}

func (c *chart) add(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

// text escapes what it writes. The anchor is start, middle or end.
func (c *chart) text(x, y float64, class, anchor, text string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(text))
}

// timeAxis writes the seconds below, and lines through all of the chart.
func (c *chart) timeAxis() {
	step := niceStep(c.seconds, 8)
	for t := 0.; t <= c.seconds; t += step {
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="grid"/>`, c.x(t), c.x(t), c.top, c.height-c.bottom)
		c.text(c.x(t), c.height-c.bottom+15, "tick", "middle", fmt.Sprintf("%.0f s", t))
	}
}

// valueAxis writes values at the left.
func (c *chart) valueAxis(unit string) {
	step := niceStep(c.most, 4)
	for v := 0.; v <= c.most*1.001; v += step {
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="grid"/>`, c.left, c.width-c.right, c.y(v), c.y(v))
		c.text(c.left-6, c.y(v)+3.5, "tick", "end", unit+trim(v))
	}
}

// trim writes a number as short as it may be.
func trim(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

// niceStep divides a range into at most n parts of 1, 2 or 5 times a power of ten.
func niceStep(whole float64, n int) float64 {
	raw := whole / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if factor*power >= raw*0.999 {
			return factor * power
		}
	}
	return 10 * power
}

// point is a value from a second on.
type point struct{ at, value float64 }

// area fills between two step lines over the same seconds.
func (c *chart) area(lower, upper []point, colour string) {
	if len(upper) == 0 {
		return
	}
	path := c.steps(upper, "M")
	for i := len(lower) - 1; i >= 0; i-- {
		next := c.seconds
		if i+1 < len(lower) {
			next = lower[i+1].at
		}
		path += fmt.Sprintf("L%.1f %.1fL%.1f %.1f", c.x(next), c.y(lower[i].value), c.x(lower[i].at), c.y(lower[i].value))
	}
	c.add(`<path d="%sZ" style="fill:%s" class="area"/>`, path, colour)
}

// steps is the path of a step line, to the right end. The first point is moved to with the verb.
func (c *chart) steps(points []point, verb string) string {
	var path strings.Builder
	for i, p := range points {
		if i == 0 {
			fmt.Fprintf(&path, "%s%.1f %.1f", verb, c.x(p.at), c.y(p.value))
			continue
		}
		if p.value != points[i-1].value {
			fmt.Fprintf(&path, "H%.1fV%.1f", c.x(p.at), c.y(p.value))
		}
	}
	fmt.Fprintf(&path, "H%.1f", c.x(points[len(points)-1].at))
	return path.String()
}

// line draws a step line.
func (c *chart) line(points []point, class, colour string) {
	if len(points) > 0 {
		c.add(`<path d="%s" class="%s" style="stroke:%s"/>`, c.steps(points, "M"), class, colour)
	}
}

// polyline draws from point to point.
func (c *chart) polyline(points []point, class, colour string) {
	var path strings.Builder
	for i, p := range points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, c.x(p.at), c.y(p.value))
	}
	c.add(`<path d="%s" class="%s" style="stroke:%s"/>`, path.String(), class, colour)
}

// bar fills a stretch of time. The class is bar or, where others adjoin it, strip.
func (c *chart) bar(from, to, y, height float64, class, colour, title string) {
	if to <= from || height <= 0 {
		return
	}
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s" style="fill:%s"><title>%s</title></rect>`,
		c.x(from), y, max(c.x(to)-c.x(from), 1), height, class, colour, html.EscapeString(title))
}

// mark draws a line through the chart at a moment.
func (c *chart) mark(at float64, class string) {
	c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="%s"/>`, c.x(at), c.x(at), c.top, c.height-c.bottom, class)
}

// svg returns the element. The data attributes let a script find the time below the pointer.
func (c *chart) svg(name string) string {
	return fmt.Sprintf(`<svg class="chart" data-chart="%s" data-left="%.1f" data-right="%.1f" data-seconds="%.2f" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" xmlns="http://www.w3.org/2000/svg">
%s<line class="hair" y1="%.1f" y2="%.1f"/></svg>`,
		name, c.left, c.width-c.right, c.seconds, c.width, c.height, c.width, c.height, c.body.String(), c.top, c.height-c.bottom)
}
