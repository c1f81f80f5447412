package scaleup

import "github.com/prometheus/client_golang/prometheus"

var (
	gangAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_gang_scale_ups_total",
		Help: "Attempts to buy for a complete gang, by result: bought, no_options or error.",
	}, []string{"result"})
	evaluatedOfferings = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "gpu_spot_evaluated_offerings",
		Help:    "Offerings that were evaluated in one scale-up before no other could be cheaper.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 12),
	})
)

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(gangAttempts, evaluatedOfferings) }
