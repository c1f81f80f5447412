package mark

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// Outcomes of a reclaim.
const (
	// OutcomeDrained: evictions alone had emptied the Node before it went.
	OutcomeDrained = "drained"
	// OutcomeDeleted: the Node was empty, but pods had to be deleted.
	OutcomeDeleted = "deleted"
	// OutcomeLate: pods were on the Node to the end.
	OutcomeLate = "late"
	// OutcomeCancelled: the notice was withdrawn.
	OutcomeCancelled = "cancelled"
)

var (
	noticeToMark = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_mark_seconds",
		Help:    "From the first sight of a notice to the taint on the Node.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 120, 300},
	}, []string{"source"})
	reclaims = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaims_total",
		Help: "Reclaims that ended, by the source of the notice and by outcome: drained, deleted (empty, but not by evictions alone), late (pods were on the Node to the end), cancelled (the notice was withdrawn).",
	}, []string{"source", "outcome"})
	removedNodes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_removed_nodes_total",
		Help: "Nodes deleted after their instance was given back and was gone.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(noticeToMark, reclaims, removedNodes) }

// CountOutcome counts a reclaim that ended, by the source of its notice.
func CountOutcome(source notice.Source, outcome string) {
	reclaims.WithLabelValues(string(source), outcome).Inc()
}
