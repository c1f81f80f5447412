package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// WriteText writes the status for a terminal. The error is that of the writer.
func WriteText(to io.Writer, s *status.Status) error {
	o := of(s)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if o.Nothing != "" {
		fmt.Fprintln(w, o.Nothing)
		return w.Flush()
	}
	fmt.Fprintf(w, "%s leads; %s; pools read %s\n\n", o.Leader, o.Time, o.Read)
	for _, f := range o.Figures {
		fmt.Fprintf(w, "%s\t%s\n", f.Value, f.Label)
	}
	if len(o.Problems) > 0 {
		fmt.Fprintf(w, "\nPROBLEMS\n")
	}
	for _, p := range o.Problems {
		fmt.Fprintf(w, "%s\t%s\n", p.Where, oneLine(p.Text))
	}
	for _, t := range []table{o.Decisions, o.Reclaims, o.Jobs, o.Pending, o.Offerings} {
		if len(t.Rows) == 0 && t.Empty == "" {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		writeTable(w, t)
	}
	return w.Flush()
}

func writeTable(w io.Writer, t table) {
	if len(t.Rows) == 0 {
		fmt.Fprintf(w, "\n%s\n", t.Empty)
		return
	}
	fmt.Fprintf(w, "\n%s\n", strings.ToUpper(t.Title))
	names := make([]string, 0, len(t.Columns))
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	fmt.Fprintln(w, strings.Join(names, "\t"))
	for _, row := range t.Rows {
		cells := make([]string, 0, len(row))
		for _, cell := range row {
			cells = append(cells, oneLine(cell))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if t.Note != "" {
		fmt.Fprintln(w, t.Note)
	}
}

// oneLine keeps the text, which may come from others, from moving the cursor of a terminal or breaking a table.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }), " ")
}
