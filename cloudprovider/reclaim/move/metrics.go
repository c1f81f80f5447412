package move

import "github.com/prometheus/client_golang/prometheus"

var (
	moves = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_moves_total",
		Help: "On-demand Nodes whose jobs were to move to spot instances, by outcome: completed (the instance is given back), missed (a job did not acknowledge in time that its work is saved, or could not be prepared), expired (the jobs did not leave in time), interrupted (the leader ended before), overtaken (they are losing another Node), refused (the instance has to stay).",
	}, []string{"outcome"})
	inProgress = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_moves_in_progress",
		Help: "On-demand Nodes whose jobs are moving to spot instances. They do not count among the reclaims in progress.",
	})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(moves, inProgress) }

// Count counts a move that has ended.
func Count(outcome Outcome) { moves.WithLabelValues(string(outcome)).Inc() }
