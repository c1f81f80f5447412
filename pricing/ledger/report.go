package ledger

import (
	"cmp"
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is what the ledger holds. Lines are ordered by cost, the dearest first.
type Report struct {
	// Currency is that of all money, empty while it is not known.
	Currency string `json:"currency,omitempty"`
	// Since is when the ledger began, Until the time until which everything is accounted for. Both are zero before it has begun.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Total is that of all offerings.
	Total      Amounts         `json:"total"`
	Offerings  []OfferingLine  `json:"offerings"`
	Namespaces []NamespaceLine `json:"namespaces"`
	Jobs       []JobLine       `json:"jobs"`
}

// OfferingLine is what the instances of an offering cost.
type OfferingLine struct {
	Offering
	Amounts
}

// NamespaceLine is what the pods of a namespace bear, those of jobs that have no line any more among them.
type NamespaceLine struct {
	Namespace string `json:"namespace"`
	Amounts
}

// JobLine is what the pods of a job bear.
type JobLine struct {
	Job
	// LastSeen is when it last had a pod.
	LastSeen time.Time `json:"lastSeen"`
	Amounts
}

// Report returns the totals.
func (l *Ledger) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.totals
	r := Report{
		Currency: t.currency, Since: t.since.UTC(), Until: t.until.UTC(),
		Offerings: []OfferingLine{}, Namespaces: []NamespaceLine{}, Jobs: []JobLine{},
	}
	for offering, amounts := range t.offerings {
		r.Offerings, r.Total = append(r.Offerings, OfferingLine{offering, amounts}), r.Total.plus(amounts)
	}
	for namespace, amounts := range t.namespaces {
		r.Namespaces = append(r.Namespaces, NamespaceLine{namespace, amounts})
	}
	for job, amounts := range t.jobs {
		r.Jobs = append(r.Jobs, JobLine{job, amounts.lastSeen.UTC(), amounts.Amounts})
	}
	slices.SortFunc(r.Offerings, func(a, b OfferingLine) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone))
	})
	slices.SortFunc(r.Namespaces, func(a, b NamespaceLine) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Namespace, b.Namespace))
	})
	slices.SortFunc(r.Jobs, func(a, b JobLine) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// header has the columns of WriteCSV.
var header = []string{
	"line", "pool", "instance_type", "zone", "purchase_option", "namespace", "system", "job", "currency", "instance_hours",
	"unpriced_instance_hours", "cost", "on_demand_cost", "gpu_hours", "used_gpu_hours", "reclaiming_gpu_hours",
}

// WriteCSV writes a line for each offering, namespace and job, which the first column tells apart: their costs must not be added.
func (r Report) WriteCSV(w io.Writer) error {
	// The names of jobs are their owners', and a spreadsheet takes what begins like a formula for one.
	out := csv.NewWriter(w)
	out.Write(header) // the error is that of Flush
	for _, line := range r.Offerings {
		out.Write(r.record(line.Amounts, "offering", line.Pool, line.InstanceType, line.Zone, line.PurchaseOption, "", "", ""))
	}
	for _, line := range r.Namespaces {
		out.Write(r.record(line.Amounts, "namespace", "", "", "", "", line.Namespace, "", ""))
	}
	for _, line := range r.Jobs {
		out.Write(r.record(line.Amounts, "job", "", "", "", "", line.Namespace, line.System, AsText(line.Name)))
	}
	out.Flush()
	return out.Error()
}

// AsText keeps a spreadsheet from taking the text for a formula.
func AsText(text string) string {
	if strings.ContainsAny(text[:min(1, len(text))], "=+-@\t\r") {
		return "'" + text
	}
	return text
}

func (r Report) record(a Amounts, keys ...string) []string {
	record := append(keys, r.Currency)
	for _, value := range []float64{a.InstanceHours, a.Unpriced, a.Cost, a.OnDemand, a.GPUHours, a.Used, a.Reclaiming} {
		record = append(record, strconv.FormatFloat(value, 'f', 6, 64))
	}
	return record
}
