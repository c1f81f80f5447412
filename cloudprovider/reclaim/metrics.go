package reclaim

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a reclaim.
const (
	// outcomeDrained: the Node went after evictions alone had emptied it.
	outcomeDrained = "drained"
	// outcomeDeleted: it was empty, but pods had to be deleted.
	outcomeDeleted = "deleted"
	// outcomeLate: pods were on it to the end.
	outcomeLate = "late"
	// outcomeFalseAlarm: the notice was withdrawn.
	outcomeFalseAlarm = "cancelled"
)

// How pods were taken off Nodes.
const (
	methodEvict  = "evict"
	methodDelete = "delete"
)

// What became of requests for checkpoints.
const (
	checkpointSaved  = "acknowledged"
	checkpointMissed = "missed"
)

// sinceNotice are buckets for what happens within the five minutes of a notice.
var sinceNotice = []float64{1, 2, 5, 10, 20, 30, 60, 120, 180, 240, 270, 300, 360}

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
		Help: "Events pushed to the endpoint for notices, by outcome: accepted, duplicate, unknown (no Node here has that instance), foreign (another region), on-demand (the Node is not of a spot instance), stale, other (not about a spot instance); requests refused as unauthorized, malformed or failed (the sender tries again).",
	}, []string{"outcome"})
	pushSignatures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_push_signatures_total",
		Help: "Pushed requests that show EventBridge's token, or all where signatures are required, by their signature: valid, wrong, missing, unchecked (its certificate could not be had).",
	}, []string{"outcome"})
	noticeToEmpty = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_empty_seconds",
		Help:    "From the first sight of a notice to a Node without pods, those of DaemonSets and the kubelet aside.",
		Buckets: sinceNotice,
	}, []string{"source"})
	noticeToReplacement = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_replacement_seconds",
		Help:    "From the first sight of a notice until there was a place, existing or bought, for what is on the Node.",
		Buckets: []float64{.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300},
	}, []string{"source"})
	noticeToWord = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_notice_to_acknowledgement_seconds",
		Help:    "From the first sight of a notice to a job's acknowledgement that its work is saved, by the job's system.",
		Buckets: sinceNotice,
	}, []string{"system"})
	leftWhenEmpty = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_reclaim_left_when_empty_seconds",
		Help:    "What was left until the deadline when a Node was without pods; negative where it came too late.",
		Buckets: []float64{-60, -30, 0, 10, 20, 30, 60, 90, 120, 180, 240, 300},
	}, []string{"source"})
	reclaims = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaims_total",
		Help: "Reclaims that ended, by the source of the notice and by outcome: drained, deleted (empty, but not by evictions alone), late (pods were on the Node to the end), cancelled (the notice was withdrawn).",
	}, []string{"source", "outcome"})
	podsRemoved = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_drained_pods_total",
		Help: "Pods taken off reclaiming Nodes, by the system of their job and by method: evict, or delete where eviction would have come too late.",
	}, []string{"system", "method"})
	podsWarned = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_warned_pods_total",
		Help: "Pods that were told of the reclaim of a Node of their job, by the system of the job.",
	}, []string{"system"})
	checkpoints = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_checkpoints_total",
		Help: "Requests for checkpoints that came to an end, by the system of the job and by outcome: acknowledged, missed (the acknowledgement was awaited and did not come in time).",
	}, []string{"system", "outcome"})
	askFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_job_failures_total",
		Help: "Failed attempts to have a job prepared for the loss of pods, by the system of the job and by action: warn, stop, or decide (shrink or suspend).",
	}, []string{"system", "action"})
	removedNodes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_removed_nodes_total",
		Help: "Nodes deleted after their instance was given back and was gone.",
	})
	underWay = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaims_in_progress",
		Help: "Nodes that are marked for reclaim.",
	})
	unconfirmedNotices = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_notices_unconfirmed",
		Help: "Pushed notices that are acted upon, but that no other source has confirmed: nothing is evicted for them yet.",
	})
	heldNotices = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_notices_held",
		Help: "Pushed notices that are not acted upon before another source confirms them, because too many others are unconfirmed, or ECS contradicted the last one for the instance.",
	})
	unseenByPoll = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_notices_unseen_by_poll_total",
		Help: "Notices that the poll was silent about, though the instance was still there, by the source that spoke.",
	}, []string{"source"})
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
	r.MustRegister(noticeToMark, noticeToReplacement, noticeToWord, noticeToEmpty, leftWhenEmpty, confirmationDelay, pushedEvents, pushSignatures,
		reclaims, underWay, removedNodes, podsWarned, podsRemoved, checkpoints, askFailures, unconfirmedNotices, heldNotices, unseenByPoll, pollFailures, lastPoll)
}
