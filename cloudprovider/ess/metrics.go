package ess

import "github.com/prometheus/client_golang/prometheus"

var (
	refreshSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "gpu_spot_refresh_duration_seconds",
		Help:    "Seconds that one refresh of all pools took.",
		Buckets: prometheus.ExponentialBuckets(0.05, 2, 10),
	})
	refreshErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_refresh_errors_total",
		Help: "Refreshes that failed, after which the last good snapshot was served.",
	})
	lastRefresh = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_last_refresh_timestamp_seconds",
		Help: "Unix time of the last successful refresh.",
	})
	poolProblem = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_problem",
		Help: "1 while the pool has the problem.",
	}, []string{"pool", "reason"})
	poolErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_pool_problems_total",
		Help: "Problems of a pool that appeared or changed.",
	}, []string{"pool", "reason"})
	poolTargeting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_targeting",
		Help: "1 for the way in which the pool is targeted (single, request or whole), and for what decided it: one_offering, tag, plan, delivery, refusal, or none as long as nothing did.",
	}, []string{"pool", "mode", "reason"})
	poolInstances = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_instances",
		Help: "Instances of the pool: live, outstanding (bought and not there), reclaiming, removing, standby and stopped (which serve nothing); of the live, those that are protected from scale-in.",
	}, []string{"pool", "state"})
	purchasedInstances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_purchased_instances_total",
		Help: "Instances asked for in purchases that the cloud accepted.",
	}, []string{"pool", "purchase_option"})
	queueLength = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_purchase_queue_length",
		Help: "Purchases that the cloud has not accepted yet.",
	}, []string{"pool"})
	queueSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_purchase_queue_seconds",
		Help:    "Seconds from a purchase to its acceptance by the cloud.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 12),
	}, []string{"pool"})
	givenUp = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_given_up_instances_total",
		Help: "Instances that could not be asked for in time, because the scaling group took no purchase.",
	}, []string{"pool"})
	missedNotes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_purchase_notes_missing_total",
		Help: "Activities of purchases that came back without the note that says what they are for.",
	}, []string{"pool"})
	purchaseFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_purchase_failures_total",
		Help: "Instances that were asked for and did not come, by the cloud's error code.",
	}, []string{"pool", "instance_type", "zone", "purchase_option", "code"})
	compensatedInstances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_compensated_instances_total",
		Help: "Pay-as-you-go instances that came where spot was asked for.",
	}, []string{"pool"})
	unrecognizedNodes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_unrecognized_nodes_total",
		Help: "Nodes without a providerID of Alibaba Cloud, which are left alone.",
	})
	restlessOfferings = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_recently_reclaimed_offerings",
		Help: "Offerings that had an instance reclaimed of late, for which their price counts for more.",
	})
	failedRemovals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_removal_failures_total",
		Help: "Instances that the cloud accepted to remove and did not, which count again.",
	}, []string{"pool"})
	removedInstances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_removed_instances_total",
		Help: "Instances that the cloud accepted to remove.",
	}, []string{"pool"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are registered already.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(refreshSeconds, refreshErrors, lastRefresh, poolProblem, poolErrors, poolTargeting, poolInstances,
		purchasedInstances, queueLength, queueSeconds, givenUp, missedNotes, purchaseFailures, compensatedInstances,
		unrecognizedNodes, restlessOfferings, removedInstances, failedRemovals)
}
