package spotfirst

import "github.com/prometheus/client_golang/prometheus"

var malformedWishes = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "gpu_spot_malformed_on_demand_after_pods_total",
	Help: "Pods whose annotation gpu-spot.autoscaling/on-demand-after cannot be read, and is ignored.",
})

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(malformedWishes) }
