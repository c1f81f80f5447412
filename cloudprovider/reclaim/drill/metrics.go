package drill

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

var (
	drills = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_drills_total",
		Help: "Nodes whose drill has ended, by how far it was to go and by outcome: completed, missed (an acknowledgement did not come in time), expired (its time was over before), cancelled (somebody ended it), overtaken (something else took the Node or another Node of its jobs), refused (it never began).",
	}, []string{"until", "outcome"})
	inProgress = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_drills_in_progress",
		Help: "Nodes on which a reclaim is rehearsed. They do not count among the reclaims in progress.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(drills, inProgress) }

// Count counts a drill that has ended. Of one that no longer stands on its Node it is not known how far it was to go.
func Count(until notice.Until, outcome Outcome) {
	label := "unknown"
	if until == notice.UntilCheckpoint || until == notice.UntilDrain {
		label = string(until)
	}
	drills.WithLabelValues(label, string(outcome)).Inc()
}
