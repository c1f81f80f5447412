package scaledown

import "github.com/prometheus/client_golang/prometheus"

var keptNodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "gpu_spot_scale_down_kept_nodes",
	Help: "Unneeded nodes that the last scale-down left alone, by reason: minimum (of their pool), cooldown, or kept (protected in ESS, or disputed, see the Event SpotNodeDisputed; counted whether needed or not).",
}, []string{"reason"})

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(keptNodes) }
