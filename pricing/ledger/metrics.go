package ledger

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The counters are those of the process: they begin at 0 with it, and grow by what it accounts for, so that rates over them are right
// whoever leads. The ledger itself has the totals.
var (
	storeErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_cost_ledger_errors_total",
		Help: "Failed attempts to load or save the cost ledger. It is counted on from what was saved last.",
	})
	costs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_cost_total",
		Help: "What the instances of a pool cost, in the account's currency.",
	}, []string{"pool", "purchase_option"})
	onDemandCosts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_on_demand_cost_total",
		Help: "What the same instances would cost on demand.",
	}, []string{"pool", "purchase_option"})
	gpuHours = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_gpu_hours_total",
		Help: "GPU-hours of the instances of a pool, by use: used (requested by pods), idle, and reclaiming (from a notice to the release, used or not).",
	}, []string{"pool", "use"})
	namespaceCosts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_namespace_cost_total",
		Help: "What the pods of a namespace cost, in the account's currency. Those of more than 100 namespaces are in (other).",
	}, []string{"namespace"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(storeErrors, costs, onDemandCosts, gpuHours, namespaceCosts)
}

// count adds what an instance cost to the metrics.
func count(o Offering, a Amounts) {
	costs.WithLabelValues(o.Pool, o.PurchaseOption).Add(a.Cost)
	onDemandCosts.WithLabelValues(o.Pool, o.PurchaseOption).Add(a.OnDemand)
	gpuHours.WithLabelValues(o.Pool, "used").Add(a.Used)
	gpuHours.WithLabelValues(o.Pool, "idle").Add(max(0, a.GPUHours-a.Used))
	gpuHours.WithLabelValues(o.Pool, "reclaiming").Add(a.Reclaiming)
}

// mostCounted bounds the namespaces with a metric of their own.
const mostCounted = 100

// counted are the namespaces that have one.
var counted = struct {
	sync.Mutex
	sets.Set[string]
}{Set: sets.New[string]()}

// countNamespace adds what pods bear to the metrics.
func countNamespace(namespace string, a Amounts) {
	counted.Lock()
	if counted.Len() < mostCounted {
		counted.Insert(namespace)
	}
	if !counted.Has(namespace) {
		namespace = other
	}
	counted.Unlock()
	namespaceCosts.WithLabelValues(namespace).Add(a.Cost)
}
