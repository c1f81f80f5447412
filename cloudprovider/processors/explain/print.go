package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// WriteText writes the explanation as a person reads it. The error is that of the writer.
func (x *Explanation) WriteText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Pod:\t%s/%s\n", x.Namespace, x.Name)
	fmt.Fprintf(w, "Summary:\t%s\n", x.Summary)
	if x.Step != "" {
		fmt.Fprintf(w, "Step:\t%s\n", x.Step)
	}
	writeReasons(w, "Pod's reasons", x.Reasons)
	writeReasons(w, "Problems", x.Problems)
	if err := w.Flush(); err != nil {
		return err
	}
	if len(x.Offerings) == 0 {
		return nil
	}
	price := "PRICE"
	if x.Currency != "" {
		price += " (" + x.Currency + ")"
	}
	fmt.Fprintf(w, "Offerings:\n  OFFERING\t%s\tFITS\tWHAT STANDS IN THE WAY\n", price)
	for i := range x.Offerings {
		offering := &x.Offerings[i]
		known, fits, why := "unknown", "no", messages(offering.Reasons)
		if offering.Price != nil {
			known = fmt.Sprintf("%g", *offering.Price)
		}
		if offering.Fits {
			fits = "yes"
		}
		if why == "" {
			why = "nothing"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", offering.ID, known, fits, oneLine(why))
	}
	return w.Flush()
}

func writeReasons(w io.Writer, title string, all []*reasons.Reason) {
	for i, reason := range all {
		name := ""
		if i == 0 {
			name = title + ":"
		}
		fmt.Fprintf(w, "%s\t%s\n", name, oneLine(reason.Message))
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
