package poll

import "github.com/prometheus/client_golang/prometheus"

var (
	unlistedNotices = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_notices_unseen_by_poll_total",
		Help: "Notices of instances that still exist and that the poll did not list, by the source that announced the notice.",
	}, []string{"source"})
	failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_poll_failures_total",
		Help: "Polls for notices that failed, also those that could not learn what became of an instance.",
	})
	lastPoll = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_last_poll_timestamp_seconds",
		Help: "Unix time when ECS last listed the recycling instances; 0 if it has not yet answered this process.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(unlistedNotices, failures, lastPoll)
}
