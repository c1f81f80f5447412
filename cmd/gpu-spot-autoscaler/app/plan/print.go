package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"gpu-spot-autoscaler/pricing"
)

// WriteJSON writes the plan for a program. The error is that of the writer.
func (p *Plan) WriteJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(p)
}

// WriteText writes the plan for a person. The error is that of the writer.
func (p *Plan) WriteText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for i := range p.Jobs {
		p.Jobs[i].write(w)
	}
	if len(p.Purchase.Items) == 0 {
		fmt.Fprintln(w, "Buys:\tnothing")
	} else {
		p.write(w, "Buys", p.Purchase)
		if p.RunnerUp != nil {
			p.write(w, "Runner-up", *p.RunnerUp)
		} else {
			fmt.Fprintln(w, "Runner-up:\tnone: nothing else could be bought")
		}
	}
	for _, note := range p.Notes {
		fmt.Fprintf(w, "Note:\t%s\n", note)
	}
	return w.Flush()
}

func (o *Outcome) write(w io.Writer) {
	fmt.Fprintf(w, "Job:\t%s %s/%s\n", o.Kind, o.Namespace, o.Name)
	parts := []string{}
	for _, part := range []struct {
		pods int
		what string
	}{{o.HavePlace, "have a place on nodes that there are or that are on their way"}, {o.NewNodes, "get new nodes"}} {
		if part.pods > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.pods, part.what))
		}
	}
	for _, waiting := range o.Waiting {
		if waiting.Pods > 0 {
			parts = append(parts, fmt.Sprintf("%d would wait", waiting.Pods))
		}
	}
	fmt.Fprintf(w, "Pods:\t%d", o.Pods)
	if len(parts) > 0 {
		fmt.Fprintf(w, ": %s", strings.Join(parts, ", "))
	}
	fmt.Fprintln(w)
	for _, waiting := range o.Waiting {
		fmt.Fprintf(w, "Why:\t%s\n", waiting.Summary)
		if waiting.Step != "" {
			fmt.Fprintf(w, "Step:\t%s\n", waiting.Step)
		}
	}
}

func (p *Plan) write(w io.Writer, title string, bought Purchase) {
	title += ":"
	for _, item := range bought.Items {
		price := "price unknown"
		if item.Price != nil {
			price = pricing.Amount(*item.Price, p.Currency) + " an hour each"
			if item.InstanceType == pricing.AnyType {
				price += " at most"
			}
		}
		what := fmt.Sprintf("%s (%s) in %s, pool %s", item.InstanceType, item.PurchaseOption, item.Zone, item.Pool)
		if item.InstanceType == pricing.AnyType {
			what = fmt.Sprintf("what pool %s delivers (%s)", item.Pool, item.PurchaseOption)
		}
		fmt.Fprintf(w, "%s\t%d × %s, at %s\n", title, item.Count, what, price)
		title = ""
	}
	if bought.PricePerHour == nil {
		return
	}
	fmt.Fprintf(w, "\t%s an hour together", pricing.Amount(*bought.PricePerHour, p.Currency))
	if bought.CostToFinish != nil {
		fmt.Fprintf(w, "; %s expected until the job has done its %s of work", pricing.Amount(*bought.CostToFinish, p.Currency), p.work())
	}
	fmt.Fprintln(w)
}

func (p *Plan) work() string {
	for i := range p.Jobs {
		if p.Jobs[i].Work != "" {
			return p.Jobs[i].Work
		}
	}
	return ""
}
