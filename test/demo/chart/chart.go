// Package chart draws charts over time as SVG. Colours are CSS variables, so that the page or the picture around a chart
// decides on light and dark.
package chart

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Chart is one chart. Its x axis is in seconds from the beginning.
type Chart struct {
	Width, Height float64
	// Left, Right, Top and Bottom are margins.
	Left, Right, Top, Bottom float64

	seconds float64 // at the right end
	most    float64 // at the top end
	body    strings.Builder
}

// New returns an empty chart, which leaves room for the axes.
func New(width, height, seconds, most float64) *Chart {
	return &Chart{Width: width, Height: height, Left: 46, Right: 12, Top: 12, Bottom: 24, seconds: max(seconds, 1), most: max(most, 1e-9)}
}

// X is where a moment is drawn.
func (c *Chart) X(seconds float64) float64 {
	return c.Left + min(max(seconds, 0), c.seconds)/c.seconds*(c.Width-c.Left-c.Right)
}

// Y is where a value is drawn.
func (c *Chart) Y(value float64) float64 {
	return c.Height - c.Bottom - min(max(value, 0), c.most)/c.most*(c.Height-c.Top-c.Bottom)
}

// Add adds an element of SVG.
func (c *Chart) Add(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

// Text escapes what it writes. The anchor is start, middle or end.
func (c *Chart) Text(x, y float64, class, anchor, text string) {
	c.Add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(text))
}

// TimeAxis writes the seconds below, and lines through all of the chart.
func (c *Chart) TimeAxis() {
	step := niceStep(c.seconds, 8)
	for t := 0.; t <= c.seconds; t += step {
		c.Add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="grid"/>`, c.X(t), c.X(t), c.Top, c.Height-c.Bottom)
		c.Text(c.X(t), c.Height-c.Bottom+15, "tick", "middle", fmt.Sprintf("%.0f s", t))
	}
}

// ValueAxis writes values at the left.
func (c *Chart) ValueAxis(unit string) {
	step := niceStep(c.most, 4)
	for v := 0.; v <= c.most*1.001; v += step {
		c.Add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="grid"/>`, c.Left, c.Width-c.Right, c.Y(v), c.Y(v))
		c.Text(c.Left-6, c.Y(v)+3.5, "tick", "end", unit+trim(v))
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

// Point is a value from a second on.
type Point struct{ At, Value float64 }

// Area fills between two step lines over the same seconds.
func (c *Chart) Area(lower, upper []Point, colour string) {
	if len(upper) == 0 {
		return
	}
	path := c.steps(upper, "M")
	for i := len(lower) - 1; i >= 0; i-- {
		next := c.seconds
		if i+1 < len(lower) {
			next = lower[i+1].At
		}
		path += fmt.Sprintf("L%.1f %.1fL%.1f %.1f", c.X(next), c.Y(lower[i].Value), c.X(lower[i].At), c.Y(lower[i].Value))
	}
	c.Add(`<path d="%sZ" style="fill:%s" class="area"/>`, path, colour)
}

// steps is the path of a step line, to the right end. The first point is moved to with the verb.
func (c *Chart) steps(points []Point, verb string) string {
	var path strings.Builder
	for i, p := range points {
		if i == 0 {
			fmt.Fprintf(&path, "%s%.1f %.1f", verb, c.X(p.At), c.Y(p.Value))
			continue
		}
		if p.Value != points[i-1].Value {
			fmt.Fprintf(&path, "H%.1fV%.1f", c.X(p.At), c.Y(p.Value))
		}
	}
	fmt.Fprintf(&path, "H%.1f", c.X(points[len(points)-1].At))
	return path.String()
}

// Line draws a step line.
func (c *Chart) Line(points []Point, class, colour string) {
	if len(points) > 0 {
		c.Add(`<path d="%s" class="%s" style="stroke:%s"/>`, c.steps(points, "M"), class, colour)
	}
}

// Polyline draws from point to point.
func (c *Chart) Polyline(points []Point, class, colour string) {
	var path strings.Builder
	for i, p := range points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, c.X(p.At), c.Y(p.Value))
	}
	c.Add(`<path d="%s" class="%s" style="stroke:%s"/>`, path.String(), class, colour)
}

// Between is the path around the area between two polylines.
func (c *Chart) Between(lower, upper []Point) string {
	var path strings.Builder
	for i, p := range upper {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, c.X(p.At), c.Y(p.Value))
	}
	for _, p := range slices.Backward(lower) {
		fmt.Fprintf(&path, "L%.1f %.1f", c.X(p.At), c.Y(p.Value))
	}
	return path.String() + "Z"
}

// Bar fills a stretch of time. The class is bar or, where others adjoin it, strip.
func (c *Chart) Bar(from, to, y, height float64, class, colour, title string) {
	if to <= from || height <= 0 {
		return
	}
	c.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s" style="fill:%s"><title>%s</title></rect>`,
		c.X(from), y, max(c.X(to)-c.X(from), 1), height, class, colour, html.EscapeString(title))
}

// Mark draws a line through the chart at a moment.
func (c *Chart) Mark(at float64, class string) {
	c.Add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="%s"/>`, c.X(at), c.X(at), c.Top, c.Height-c.Bottom, class)
}

// SVG returns the element. The data attributes let a script find the time below the pointer.
func (c *Chart) SVG(name string) string {
	return fmt.Sprintf(`<svg class="chart" data-chart="%s" data-left="%.1f" data-right="%.1f" data-seconds="%.2f" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" xmlns="http://www.w3.org/2000/svg">
%s<line class="hair" y1="%.1f" y2="%.1f"/></svg>`,
		name, c.Left, c.Width-c.Right, c.seconds, c.Width, c.Height, c.Width, c.Height, c.body.String(), c.Top, c.Height-c.Bottom)
}
