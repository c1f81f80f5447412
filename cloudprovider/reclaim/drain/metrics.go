package drain

import "github.com/prometheus/client_golang/prometheus"

// Methods by which pods are moved.
const (
	methodEvict  = "evict"
	methodDelete = "delete"
)

var (
	noticeToEmpty = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_empty_seconds",
		Help:    "From the first sight of a notice to a Node without pods, except those of DaemonSets and of the kubelet.",
		Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 180, 240, 270, 300, 360},
	}, []string{"source"})
	leftWhenEmpty = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_left_when_empty_seconds",
		Help:    "What was left until the deadline when a Node was without pods; negative if that was after it.",
		Buckets: []float64{-60, -30, 0, 10, 20, 30, 60, 90, 120, 180, 240, 300},
	}, []string{"source"})
	drainedPods = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_drained_pods_total",
		Help: "Pods taken off reclaiming Nodes, by the system of their job and by method: evict, or delete if an eviction would have come too late.",
	}, []string{"system", "method"})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(noticeToEmpty, leftWhenEmpty, drainedPods)
}
