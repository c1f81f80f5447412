package reclaim

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a reclaim.
const (
	// outcomeDrained: the Node went after it had been without pods.
	outcomeDrained = "drained"
	// outcomeLost: the Node went with pods on it.
	outcomeLost = "lost"
	// outcomeCancelled: the notice was withdrawn.
	outcomeCancelled = "cancelled"
)

var (
	noticeToMark = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_mark_seconds",
		Help:    "From the first sight of a notice to the taint on the Node.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 120, 300},
	}, []string{"source"})
	confirmationDelay = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_confirmation_delay_seconds",
		Help:    "How much later than the first source of a notice this one spoke.",
		Buckets: []float64{.1, .5, 1, 2, 5, 10, 30, 60, 120, 300},
	}, []string{"source"})
	pushedEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_pushed_events_total",
		Help: "Events pushed to the endpoint for notices, by outcome: accepted, duplicate, unknown (no Node here has that instance), foreign (another region), stale, other (not about a spot instance); requests refused as unauthorized, malformed or failed (the sender tries again).",
	}, []string{"outcome"})
	noticeToEmpty = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_empty_seconds",
		Help:    "From the first sight of a notice to a Node without pods, those of DaemonSets and the kubelet aside.",
		Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 180, 240, 270, 300, 360},
	}, []string{"source"})
	reclaims = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaims_total",
		Help: "Reclaims that ended, by the source of the notice and by outcome: drained, lost (pods were on the Node to the end), cancelled.",
	}, []string{"source", "outcome"})
	podsRemoved = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_pods_total",
		Help: "Pods taken off doomed Nodes, by method: evict, or delete where eviction would have come too late.",
	}, []string{"method"})
	underWay = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaims_in_progress",
		Help: "Nodes that are marked for reclaim.",
	})
	pollFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_poll_failures_total",
		Help: "Polls for notices that failed.",
	})
	lastPoll = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_last_poll_timestamp_seconds",
		Help: "Unix time of the last poll for notices that succeeded; 0 where this process never polled.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(noticeToMark, confirmationDelay, pushedEvents, noticeToEmpty, reclaims, podsRemoved, underWay, pollFailures, lastPoll)
}
