package main

import (
	"fmt"
	"html"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/status/view"
)

const pictureWidth, pictureMargin = 1240., 30.

// picture is the report in one SVG, for a README: figures, timeline and money, light or dark as the reader has it.
func (r *report) picture() string {
	p := newPlots(r)
	inner := pictureWidth - 2*pictureMargin
	var b strings.Builder
	y := 52.
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" style="font-size:22px;font-weight:700">gpu-spot-autoscaler: make demo</text>`, pictureMargin, y)
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" class="label" style="font-size:13px" text-anchor="end">three GPU jobs, %d spot instances, %.1f market hours in %.0f s</text>`,
		pictureWidth-pictureMargin, y, r.Summary.Instances, r.Summary.MarketHours, r.Summary.Seconds)
	y += 24
	y = r.pictureFigures(&b, y, inner)
	y = place(&b, p.jobsAndInstances(inner), y)
	half := (inner - 20) / 2
	bottom := place(&b, p.gpus(half, 220), titled(&b, "GPUs by offering; the line counts those at work", pictureMargin, y))
	nest(&b, p.spend(half, 220), pictureMargin+half+20, titled(&b, "Spent, against the same instances on demand", pictureMargin+half+20, y))
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">
<style>%s</style>
<rect width="100%%" height="100%%" rx="14" style="fill:var(--card)"/>
%s
</svg>
`, pictureWidth, bottom+16, pictureWidth, bottom+16, view.Style, b.String())
}

func (r *report) pictureFigures(b *strings.Builder, y, width float64) float64 {
	figures := r.figures()[:7]
	each := width / float64(len(figures))
	for i, f := range figures {
		x := pictureMargin + float64(i)*each
		class := ""
		if f.Good {
			class = ` class="good"`
		}
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f"%s style="font-size:25px;font-weight:700">%s</text>`, x, y+28, class, html.EscapeString(f.Value))
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" class="label" style="font-size:11px">%s</text>`, x, y+46, html.EscapeString(f.Short))
	}
	return y + 66
}

func titled(b *strings.Builder, title string, x, y float64) float64 {
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" class="name">%s</text>`, x, y+16, html.EscapeString(title))
	return y + 24
}

// place puts a chart at the left margin and returns where it ends.
func place(b *strings.Builder, svg string, y float64) float64 {
	nest(b, svg, pictureMargin, y)
	var width, height float64
	_, box, _ := strings.Cut(svg, `viewBox="0 0 `)
	if _, err := fmt.Sscanf(box, "%f %f", &width, &height); err != nil {
		panic(err) // our own text
	}
	return y + height
}

func nest(b *strings.Builder, svg string, x, y float64) {
	b.WriteString(strings.Replace(svg, "<svg ", fmt.Sprintf(`<svg x="%.0f" y="%.0f" `, x, y), 1))
}
