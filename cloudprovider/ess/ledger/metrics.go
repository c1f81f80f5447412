package ledger

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Codes of failures for which Alibaba Cloud has none.
const (
	// codeCameShort: the activity delivered less than was asked for and does not say why.
	codeCameShort = "CameShort"
	// codeTimedOut: nothing was heard of the purchase for too long.
	codeTimedOut = "TimedOut"
	// codeUnknown: the error is not Alibaba Cloud's.
	codeUnknown = "Unknown"
)

var (
	poolTargeting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_targeting",
		Help: "1 for the way in which the pool is targeted (single, request, whole or run-instances), and for what decided it: one_offering, tag, plan (what ESS planned), delivery (what it delivered), refusal, or none as long as nothing did.",
	}, []string{"pool", "mode", "reason"})
	poolInstances = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_instances",
		Help: "Instances of the pool: live, purchased (and not delivered yet), reclaiming, removing, standby and stopped (which serve nothing); of the live, those that are protected (from scale-in in ESS, and never given back), and those that are unattached (bought by RunInstances, and not in their scaling group yet).",
	}, []string{"pool", "state"})
	purchasedInstances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_purchased_instances_total",
		Help: "Instances asked for in purchases that the cloud accepted.",
	}, []string{"pool", "purchase_option"})
	queueLength = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_purchase_queue_length",
		Help: "Purchases that are being sent to the cloud, or wait for their turn.",
	}, []string{"pool"})
	queueSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_purchase_queue_seconds",
		Help:    "Seconds from a purchase to its acceptance by the cloud.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 12),
	}, []string{"pool"})
	givenUp = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_given_up_instances_total",
		Help: "Instances that are not asked for any more, because the purchase could not be sent: see the Event SpotPurchaseGivenUp.",
	}, []string{"pool"})
	missedNotes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_purchase_notes_missing_total",
		Help: "Activities of purchases that came back without the note that says what they are for, each counted once. See the Event SpotPurchaseNoteLost.",
	}, []string{"pool"})
	purchaseFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_purchase_failures_total",
		Help: "Instances that were purchased and not delivered, by the cloud's error code: one of those that are documented, CameShort, TimedOut or Unknown where it has none, and Other. The Event SpotPurchaseFailed has the code in full.",
	}, []string{"pool", "instance_type", "zone", "purchase_option", "code"})
	compensatedInstances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_compensated_instances_total",
		Help: "Pay-as-you-go instances that were delivered for spot purchases.",
	}, []string{"pool"})
	outOfStock = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_out_of_stock_offerings",
		Help: "Offerings of which a purchase came short in the last 5 minutes because the instance type is out of stock in the zone.",
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
	r.MustRegister(poolTargeting, poolInstances, purchasedInstances, queueLength, queueSeconds, givenUp, missedNotes,
		purchaseFailures, compensatedInstances, outOfStock, failedRemovals, removedInstances)
}

// codeLabel bounds the number of label values.
func codeLabel(code string) string {
	switch code {
	case codeCameShort, codeTimedOut, codeUnknown:
		return code
	}
	return alicloud.LabelOf(code)
}

// ExposePools sets the gauges of all pools.
func (l *Ledger) ExposePools() {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	poolTargeting.Reset()
	poolInstances.Reset()
	queueLength.Reset()
	outOfStock.Set(float64(len(l.state.facts.Shortages)))
	for id, known := range l.state.facts.Pools {
		a, size := l.state.account(id), l.state.last.PoolSize(id)
		poolTargeting.WithLabelValues(id, string(known.Targeting), string(a.target.basisOf(known))).Set(1)
		for state, n := range map[string]int{
			"live": size.Live, "purchased": size.Purchased, "reclaiming": size.Reclaiming, "removing": size.Removing,
			"standby": size.Standby, "stopped": size.Stopped, "protected": size.Protected, "unattached": size.Unattached,
		} {
			poolInstances.WithLabelValues(id, state).Set(float64(n))
		}
		queueLength.WithLabelValues(id).Set(float64(len(a.waiting())))
	}
}
