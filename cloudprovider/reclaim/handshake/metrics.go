package handshake

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of requests for checkpoints.
const (
	checkpointAcknowledged = "acknowledged"
	checkpointMissed       = "missed"
)

// Actions on jobs.
const (
	actionWarn   = "warn"
	actionStop   = "stop"
	actionDecide = "decide"
)

var (
	noticeToReplacement = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_replacement_seconds",
		Help:    "From the first sight of a notice until there was a place, existing or bought, for what is on the Node.",
		Buckets: []float64{.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300},
	}, []string{"source"})
	noticeToReady = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_ready_seconds",
		Help:    "From the first sight of a notice until there was a place on nodes that are ready for what is on the Node. Counted with --reclaim-replace-until=ready only.",
		Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 90, 120, 150, 180, 210, 240, 300, 600},
	}, []string{"source"})
	noticeToAcknowledgement = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_acknowledgement_seconds",
		Help:    "From the first sight of a notice to a job's acknowledgement that its work is saved, by the job's system.",
		Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 180, 240, 270, 300, 360},
	}, []string{"system"})
	warnedPods = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_warned_pods_total",
		Help: "Pods that were told of the reclaim of a Node of their job, by the system of the job.",
	}, []string{"system"})
	checkpoints = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_checkpoints_total",
		Help: "Requests for checkpoints that came to an end, by the system of the job and by outcome: acknowledged, missed (the acknowledgement was awaited and did not come in time).",
	}, []string{"system", "outcome"})
	jobFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_job_failures_total",
		Help: "Failed attempts to have a job prepared for the loss of pods, by the system of the job and by action: warn, stop, or decide (shrink or suspend). The pods of the job are then drained like others.",
	}, []string{"system", "action"})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(noticeToReplacement, noticeToReady, noticeToAcknowledgement, warnedPods, checkpoints, jobFailures)
}
