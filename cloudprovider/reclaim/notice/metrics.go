package notice

import "github.com/prometheus/client_golang/prometheus"

var (
	confirmationDelay = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_confirmation_delay_seconds",
		Help:    "How much later than the first source of a notice this one announced it.",
		Buckets: []float64{.1, .5, 1, 2, 5, 10, 30, 60, 120, 300},
	}, []string{"source"})
	heldNotices = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_notices_held",
		Help: "Pushed notices that are not acted upon before another source confirms them, because too many others are unconfirmed, or ECS contradicted the last one for the instance. While ECS can be asked, this lasts for seconds only.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(confirmationDelay, heldNotices)
}
