package savings

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"gpu-spot-autoscaler/pricing/ledger"
)

// What a line is.
const (
	byPool      = "pool"
	byOffering  = "offering"
	byNamespace = "namespace"
	byJob       = "job"
)

var kinds = []string{byPool, byOffering, byNamespace, byJob}

// Savings are what was paid, beside what on-demand instances would have cost.
type Savings struct {
	// Currency is that of all money, empty while it is not known.
	Currency string    `json:"currency,omitempty"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	// By says what a line is.
	By string `json:"by"`
	// Lines are ordered by what was saved, the most first.
	Lines []Line `json:"lines"`
	// Total is that of all offerings, with what no pod used.
	Total Line `json:"total"`
}

// Line is what was saved of something. All money is in the currency of the Savings.
type Line struct {
	Name     string  `json:"name"`
	GPUHours float64 `json:"gpuHours"`
	Paid     float64 `json:"paid"`
	OnDemand float64 `json:"onDemand"`
	// Lost is what was paid from notices to releases: the most that reclaims have cost. In a line of a namespace or a job it is taken for
	// as dear as the rest of the line.
	Lost float64 `json:"lost"`
	// Saved is OnDemand without Paid and Lost.
	Saved float64 `json:"saved"`
}

// of returns what was saved according to the ledger.
func of(report ledger.Report, by string) Savings {
	s := Savings{Currency: report.Currency, Since: report.Since, Until: report.Until, By: by, Lines: []Line{}, Total: Line{Name: "total"}}
	for _, line := range report.Offerings {
		s.Total.add(lineOf("", line.Amounts))
	}
	index := map[string]int{}
	add := func(name string, amounts ledger.Amounts) {
		line := lineOf(name, amounts)
		if i, known := index[name]; known {
			s.Lines[i].add(line)
			return
		}
		index[name] = len(s.Lines)
		s.Lines = append(s.Lines, line)
	}
	switch by {
	case byPool:
		for _, line := range report.Offerings {
			add(line.Pool, line.Amounts)
		}
	case byOffering:
		for _, line := range report.Offerings {
			add(strings.Join([]string{line.Pool, line.InstanceType, line.Zone, line.PurchaseOption}, " "), line.Amounts)
		}
	case byNamespace:
		for _, line := range report.Namespaces {
			add(line.Namespace, line.Amounts)
		}
	case byJob:
		for _, line := range report.Jobs {
			add(strings.Join([]string{line.Namespace + "/" + line.Name, line.System}, " "), line.Amounts)
		}
	}
	slices.SortStableFunc(s.Lines, func(a, b Line) int { return cmp.Compare(b.Saved, a.Saved) })
	return s
}

func lineOf(name string, a ledger.Amounts) Line {
	line := Line{Name: name, GPUHours: a.GPUHours, Paid: a.Cost, OnDemand: a.OnDemand}
	if a.GPUHours > 0 {
		line.Lost = a.Cost * a.Reclaiming / a.GPUHours
	}
	line.Saved = line.OnDemand - line.Paid - line.Lost
	return line
}

func (l *Line) add(other Line) {
	l.GPUHours += other.GPUHours
	l.Paid += other.Paid
	l.OnDemand += other.OnDemand
	l.Lost += other.Lost
	l.Saved += other.Saved
}

// percent is how much of the on-demand cost was saved, empty if there was none.
func (l Line) percent() string {
	if l.OnDemand <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*l.Saved/l.OnDemand)
}

func (s Savings) writeText(out io.Writer) error {
	if s.Until.IsZero() {
		_, err := fmt.Fprintln(out, "Nothing is accounted for yet.")
		return err
	}
	currency := ""
	if s.Currency != "" {
		currency = " (" + s.Currency + ")"
	}
	fmt.Fprintf(out, "From %s to %s%s\n\n", s.Since.Format(time.DateTime), s.Until.Format(time.DateTime), currency)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\tGPU-HOURS\tPAID\tON DEMAND\tLOST\tSAVED\t\n", strings.ToUpper(s.By))
	for _, line := range append(slices.Clone(s.Lines), s.Total) {
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\n", line.Name, line.GPUHours, line.Paid, line.OnDemand, line.Lost, line.Saved, line.percent())
	}
	return w.Flush()
}

func (s Savings) writeJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// writeCSV writes the lines without the total, so that a spreadsheet may add them up.
func (s Savings) writeCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	w.Write([]string{s.By, "currency", "gpu_hours", "paid", "on_demand", "lost", "saved"}) // the error is that of Flush
	for _, line := range s.Lines {
		record := []string{ledger.AsText(line.Name), s.Currency}
		for _, value := range []float64{line.GPUHours, line.Paid, line.OnDemand, line.Lost, line.Saved} {
			record = append(record, strconv.FormatFloat(value, 'f', 6, 64))
		}
		w.Write(record)
	}
	w.Flush()
	return w.Error()
}
