package spotfirst

import "github.com/prometheus/client_golang/prometheus"

var malformedPods = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "gpu_spot_malformed_annotation_pods_total",
	Help: "Pods with an annotation on what may be bought for them that cannot be read, and is ignored.",
})

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(malformedPods) }
