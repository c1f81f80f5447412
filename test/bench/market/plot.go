package main

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	plotWidth, plotLeft, plotRight = 860, 290, 30
	plotRow, plotTop, plotBottom   = 22, 54, 20
)

// marks are what the plot shows of each row.
var marks = []struct {
	class, name string
	of          func(row) float64
}{
	{"omniscient", "least possible", func(r row) float64 { return r.Omniscient }},
	{"ours", "this project", func(r row) float64 { return r.Ours }},
	{"uniform", "Uniform Progress", func(r row) float64 { return r.UniformProgress }},
	{"greedy", "greedy", func(r row) float64 { return r.Greedy }},
	{"ondemand", "on-demand", func(r row) float64 { return r.OnDemand }},
}

const plotStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #333 } .axis { stroke: #ddd } .row { stroke: #bbb } rect { fill: #fff }
.omniscient { fill: #2a9d4a } .ours { fill: #1f6feb } .uniform { fill: #d08700 } .greedy { fill: #b0413e } .ondemand { fill: #777 }
@media (prefers-color-scheme: dark) { rect { fill: #161b22 } text { fill: #ddd } .axis { stroke: #333 } .row { stroke: #555 } }
</style>`

// plot draws what an hour of useful work costs, a line for each row, as SVG.
func plot(rows []row) string {
	most := 0.0
	for _, r := range rows {
		for _, m := range marks {
			most = max(most, m.of(r))
		}
	}
	x := func(price float64) float64 { return plotLeft + price/max(most, 1e-9)*(plotWidth-plotLeft-plotRight) }
	height := plotTop + len(rows)*plotRow + plotBottom
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>Price of an hour of useful work</title>\n%s\n<rect width=\"100%%\" height=\"100%%\"/>\n",
		plotWidth, height, plotStyle)
	text := func(x, y float64, anchor, line string) {
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(line))
	}
	for i, m := range marks {
		at := plotLeft + float64(i)*112
		fmt.Fprintf(&b, "<circle cx=\"%.0f\" cy=\"16\" r=\"5\" class=\"%s\"/>\n", at, m.class)
		text(at+9, 20, "start", m.name)
	}
	for price := 0.; price <= most; price += .5 {
		fmt.Fprintf(&b, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", x(price), x(price), plotTop-8, height-plotBottom)
		text(x(price), plotTop-12, "middle", fmt.Sprintf("%.1f", price))
	}
	for i, r := range rows {
		y := float64(plotTop + i*plotRow + plotRow/2)
		text(plotLeft-12, y+4, "end", r.label())
		fmt.Fprintf(&b, "<line class=\"row\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x(r.Omniscient), x(max(r.OnDemand, r.Greedy)), y, y)
		for _, m := range marks {
			fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" class=\"%s\"/>\n", x(m.of(r)), y, m.class)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// label says which row it is.
func (r row) label() string {
	zones := r.Zones[0]
	if len(r.Zones) > 1 {
		zones = fmt.Sprintf("%d zones, %s …", len(r.Zones), zones)
	}
	line := fmt.Sprintf("%s, slack %.2f", zones, r.Slack)
	if r.Protect != "0s" {
		line += ", protected"
	}
	if r.Knowledge != polled {
		line += ", " + string(r.Knowledge)
	}
	return line
}
