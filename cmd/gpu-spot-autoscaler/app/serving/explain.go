package serving

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/processors/explain"
)

// PodExplainer explains pods. It has to be safe for concurrent use.
type PodExplainer interface {
	Explain(namespace, name string) (*explain.Explanation, error)
}

// errNoCore is for the person who asks, whose command prints it as it is.
var errNoCore = errors.New("with serve it is not known here why a pod is pending: the Events of the Cluster Autoscaler that is served say it")

// WithoutCore is the PodExplainer of a leader that serves the provider to the core of another process, which decides for which pods to buy.
type WithoutCore struct{}

// Explain implements PodExplainer.
func (WithoutCore) Explain(string, string) (*explain.Explanation, error) { return nil, errNoCore }

// Explanations answers with the explanation of the pod that the query names (namespace, name) while this process leads, with 501 (Not
// Implemented) if it leads without a core, and otherwise with 421 (Misdirected Request). It is safe for concurrent use.
type Explanations struct {
	leading atomic.Pointer[PodExplainer]
}

// Lead makes the handler ask the explainer from now on until ctx ends.
func (e *Explanations) Lead(ctx context.Context, explainer PodExplainer) {
	e.leading.Store(&explainer)
	context.AfterFunc(ctx, func() { e.leading.Store(nil) })
}

func (e *Explanations) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leading := e.leading.Load()
	if leading == nil {
		http.Error(w, "this replica does not lead; the status says which does", http.StatusMisdirectedRequest)
		return
	}
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("name")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		http.Error(w, "namespace and name are to be those of a pod", http.StatusBadRequest)
		return
	}
	logger := klog.FromContext(r.Context())
	found, err := (*leading).Explain(namespace, name)
	switch {
	case errors.Is(err, errNoCore):
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	case err != nil:
		logger.Error(err, "Cannot explain a pod", "pod", klog.KRef(namespace, name))
		http.Error(w, "cannot explain the pod: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(found); err != nil {
		logger.V(1).Info("The caller did not read the explanation to its end", "err", err)
	}
}
