package ess

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
)

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
	unrecognizedNodes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_unrecognized_nodes_total",
		Help: "Nodes without a providerID of Alibaba Cloud, which are ignored.",
	})
	penalizedOfferings = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_recently_reclaimed_offerings",
		Help: "Offerings of which an instance was reclaimed within the last 10 minutes. When offerings are compared, their price counts 1.5 times (the interruption penalty).",
	})
	spendCapReached = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_spend_cap_reached",
		Help: "1 while the instances of the pool cost as much in an hour as its spend cap allows, so that nothing more is bought in it.",
	}, []string{"pool"})
)

// RegisterMetrics registers the metrics of this package and of those below it. It panics if they are registered already.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(refreshSeconds, refreshErrors, lastRefresh, unrecognizedNodes, penalizedOfferings, spendCapReached)
	problem.RegisterMetrics(r)
	ledger.RegisterMetrics(r)
}
