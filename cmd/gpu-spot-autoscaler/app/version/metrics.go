package version

import "github.com/prometheus/client_golang/prometheus"

var buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "gpu_spot_build_info",
	Help: "1, with what the binary was built from, as the command version prints it.",
}, []string{"version", "commit", "cluster_autoscaler"})

// RegisterMetrics registers the metrics of this package. It panics if they are registered already, as MustRegister does.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(buildInfo)
	info := Get()
	buildInfo.WithLabelValues(info.Version, info.Commit, info.ClusterAutoscaler).Set(1)
}
