package podlist

import "github.com/prometheus/client_golang/prometheus"

var (
	deferredPods = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_deferred_pods",
		Help: "Pending pods that no capacity was bought for in the last loop, by reason: settling (more may follow) or gang (their gang is incomplete).",
	}, []string{"reason"})
	malformedGangs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "gpu_spot_malformed_gang_pods_total",
		Help: "Pods that declare a gang without a size that can be read. They are treated as ordinary pods.",
	})
)

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(deferredPods, malformedGangs) }
