package push

import "github.com/prometheus/client_golang/prometheus"

var (
	eventsByOutcome = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_pushed_events_total",
		Help: "Events pushed to the endpoint for notices, by outcome: accepted, duplicate, unknown (no Node here has that instance), foreign (another region), on-demand (the Node is not of a spot instance), stale, other (not about a spot instance); requests refused as unauthorized, malformed or failed (the sender tries again).",
	}, []string{"outcome"})
	signaturesByOutcome = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_reclaim_push_signatures_total",
		Help: "Pushed requests that present EventBridge's token header or a signature, or all if signatures are required, by their signature: valid, wrong, missing, unchecked (its certificate could not be downloaded).",
	}, []string{"outcome"})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(eventsByOutcome, signaturesByOutcome) }
