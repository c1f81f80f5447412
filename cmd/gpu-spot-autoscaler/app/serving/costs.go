package serving

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/pricing/ledger"
)

// CostsPath is where the cost ledger is served, and the nonResourceURL that a reader needs permission to get.
const CostsPath = "/ledger"

// Costs answers with the cost ledger as JSON, or as CSV where the query has format=csv, while this process leads, and otherwise with 421
// (Misdirected Request). It is safe for concurrent use.
type Costs struct {
	leading atomic.Pointer[ledger.Ledger]
}

// Lead makes the handler answer with the ledger from now on until ctx ends.
func (c *Costs) Lead(ctx context.Context, l *ledger.Ledger) {
	c.leading.Store(l)
	context.AfterFunc(ctx, func() { c.leading.Store(nil) })
}

func (c *Costs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leading := c.leading.Load()
	if leading == nil {
		http.Error(w, "this replica does not lead; the status says which does", http.StatusMisdirectedRequest)
		return
	}
	var write func(io.Writer) error
	switch format := r.URL.Query().Get("format"); format {
	case "", "json":
		w.Header().Set("Content-Type", "application/json")
		write = func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(leading.Report())
		}
	case "csv":
		w.Header().Set("Content-Type", "text/csv")
		write = leading.Report().WriteCSV
	default:
		http.Error(w, "format is json or csv", http.StatusBadRequest)
		return
	}
	if err := write(w); err != nil {
		klog.FromContext(r.Context()).V(1).Info("The caller did not read the costs to their end", "err", err)
	}
}
