// Package report holds what a measurement found, and on which machine.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"text/tabwriter"
)

// Report is what a measurement found. Rows is a slice of structs; the keys of the rows are their JSON names, which are
// the columns of the table too.
type Report struct {
	Title string `json:"title"`
	Rows  any    `json:"rows"`
	// Aims are those that the rows made speak of.
	Aims []Aim `json:"aims"`
	// Details hold what the rows have no place for.
	Details any `json:"details,omitempty"`
	// Quick says that rows were left out.
	Quick   bool    `json:"quick,omitempty"`
	Machine Machine `json:"machine"`
	// Core is how fast a core of it was meanwhile.
	Core Core `json:"core"`
	// Seconds is how long it took to measure.
	Seconds float64 `json:"seconds"`
}

// Aim is a bound on a figure.
type Aim struct {
	// Aim names the figure, the row and the bound.
	Aim      string  `json:"aim"`
	Bound    float64 `json:"bound"`
	Measured float64 `json:"measured"`
	// Least says that the figure should be no less than the bound, rather than no more.
	Least bool `json:"least,omitempty"`
	Met   bool `json:"met"`
}

// AtMost is an aim for a figure that should be small.
func AtMost(bound, measured float64, format string, args ...any) Aim {
	return Aim{Aim: fmt.Sprintf(format, args...), Bound: bound, Measured: measured, Met: measured <= bound}
}

// AtLeast is an aim for a figure that should be big.
func AtLeast(bound, measured float64, format string, args ...any) Aim {
	return Aim{Aim: fmt.Sprintf(format, args...), Bound: bound, Measured: measured, Least: true, Met: measured >= bound}
}

// Write writes the report as JSON.
func (r Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Print prints the rows as a table, and below it whether the aims are met.
func (r Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", r.Title)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows := reflect.ValueOf(r.Rows)
	for _, field := range reflect.VisibleFields(rows.Type().Elem()) {
		fmt.Fprintf(table, "%s\t", field.Tag.Get("json"))
	}
	fmt.Fprintln(table)
	for i := range rows.Len() {
		for j := range rows.Index(i).NumField() {
			fmt.Fprintf(table, "%s\t", cell(rows.Index(i).Field(j)))
		}
		fmt.Fprintln(table)
	}
	table.Flush()
	for _, a := range r.Aims {
		verdict := "met   "
		if !a.Met {
			verdict = "MISSED"
		}
		side := "most"
		if a.Least {
			side = "least"
		}
		fmt.Fprintf(w, "  %s  %s: %s of at %s %s\n", verdict, a.Aim, number(a.Measured), side, number(a.Bound))
	}
	if r.Core != (Core{}) {
		fmt.Fprintf(w, "  a core took %.1f ms for the probe at best, p50 %.1f, p99 %.1f\n", r.Core.Best, r.Core.P50, r.Core.P99)
	}
}

func cell(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.CanFloat() {
		return strconv.FormatFloat(v.Float(), 'f', 3, 64)
	}
	return fmt.Sprint(v.Interface())
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
