package problems

import "github.com/prometheus/client_golang/prometheus"

// conditions are the sources that have to succeed once before a leader is ready, with their names in metrics.
var conditions = map[Source]string{Refresh: "refreshed", Poll: "polled"}

var (
	leaderCondition = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_leader_condition",
		Help: "1 once the leader has read the pools (refreshed), and asked for reclaim notices (polled); 0 as long as it has not. Absent from replicas that do not lead.",
	}, []string{"condition"})
	activeProblems = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_problems",
		Help: "Active problems, by what they were met in (refresh, poll, pools, cluster) and by reason.",
	}, []string{"source", "reason"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are registered already.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(leaderCondition, activeProblems) }

// exposeActive sets the gauge.
func exposeActive(active map[key]*entry) {
	activeProblems.Reset()
	for k := range active {
		activeProblems.WithLabelValues(string(k.source), k.reason).Inc()
	}
}
