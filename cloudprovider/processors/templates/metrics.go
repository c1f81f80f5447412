package templates

import "github.com/prometheus/client_golang/prometheus"

var (
	failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_template_failures_total",
		Help: "Node templates that could not be built. The offering is not bought from until it can.",
	})
	builds = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_template_builds_total",
		Help: "Node templates built, as opposed to remembered.",
	})
)

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(failures, builds) }
