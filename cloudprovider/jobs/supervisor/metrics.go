package supervisor

import "github.com/prometheus/client_golang/prometheus"

var (
	jobsHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_held_jobs",
		Help: "Jobs that are held, by system and reason: suspended for a reclaim or after their max-wait, or shrunk.",
	}, []string{"system", "reason"})
	waitsExpired = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_job_waits_expired_total",
		Help: "Jobs whose maximum wait for capacity was over.",
	}, []string{"system"})
	recoveries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_job_recoveries_total",
		Help: "Jobs that were resumed or grown, by mode: full or dynamic.",
	}, []string{"system", "mode"})
	heldSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_job_held_seconds",
		Help:    "Seconds for which a job was held.",
		Buckets: prometheus.ExponentialBuckets(15, 2, 14),
	}, []string{"system"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are registered already.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(jobsHeld, waitsExpired, recoveries, heldSeconds)
}
