package fault

import "github.com/prometheus/client_golang/prometheus"

var (
	faults = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_node_faults_total",
		Help: "Nodes that were marked because of a condition that says that they are faulty, by the type of the condition.",
	}, []string{"condition"})
	heldFaults = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_node_faults_held",
		Help: "Nodes with a condition that says that they are faulty and that nothing is done about, because too many others are or were faulty.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(faults, heldFaults) }
