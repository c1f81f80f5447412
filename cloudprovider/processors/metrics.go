package processors

import "github.com/prometheus/client_golang/prometheus"

var (
	heldPods = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_held_pods",
		Help: "Pending pods that no capacity was bought for in the last loop, by reason: settling (their job is still being created), gang (their gang is incomplete) or abandoned (their job has waited for as long as it may).",
	}, []string{"reason"})
	malformedGangs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_malformed_gang_pods_total",
		Help: "Pods that declare a gang without a size that can be read. They are treated as ordinary pods.",
	})
	gangAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_gang_scale_ups_total",
		Help: "Attempts to buy for a complete gang, by result: bought, no_options or error.",
	}, []string{"result"})
	doomedNodes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaiming_nodes",
		Help: "Nodes under reclaim that the last loop did not count as capacity.",
	})
	nodesOutOfService = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_nodes_out_of_service",
		Help: "Nodes that the last loop did not count as capacity because their instance is being given back, is gone, stands by or is stopped.",
	})
	templateFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_template_failures_total",
		Help: "Node templates that could not be built. The offering is not bought from until it can.",
	})
	templateBuilds = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_template_builds_total",
		Help: "Node templates built, as opposed to remembered.",
	})
	evaluatedOfferings = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "gpu_spot_evaluated_offerings",
		Help:    "Offerings that were evaluated in one scale-up before no other could be cheaper.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 12),
	})
	wakeups = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_loop_wakeups_total",
		Help: "Loops started, by what started them: pod, settled, notified, productive or interval.",
	}, []string{"reason"})
	heldNodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_scale_down_held_nodes",
		Help: "Unneeded nodes that the last scale-down left alone, by reason: minimum (of their pool), cooldown, or kept (protected in ESS, or several Nodes say that they are the same instance; counted whether needed or not).",
	}, []string{"reason"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(heldPods, malformedGangs, gangAttempts, doomedNodes, nodesOutOfService, templateFailures, templateBuilds,
		evaluatedOfferings, wakeups, heldNodes)
}
