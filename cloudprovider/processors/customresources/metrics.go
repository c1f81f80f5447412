package customresources

import "github.com/prometheus/client_golang/prometheus"

var (
	reclaimingNodes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaiming_nodes",
		Help: "Reclaiming Nodes that the last loop did not count as capacity.",
	})
	nodesOutOfService = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_nodes_out_of_service",
		Help: "Nodes that the last loop did not count as capacity because their instance is being given back, is gone, stands by or is stopped.",
	})
)

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(reclaimingNodes, nodesOutOfService) }
