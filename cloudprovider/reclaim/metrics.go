package reclaim

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/reclaim/drain"
	"gpu-spot-autoscaler/cloudprovider/reclaim/drill"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/move"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
	"gpu-spot-autoscaler/cloudprovider/reclaim/push"
)

var (
	underWay = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaims_in_progress",
		Help: "Nodes that are marked for reclaim.",
	})
	nextDeadline = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_next_deadline_timestamp_seconds",
		Help: "Unix time of the earliest deadline of the Nodes that are marked for reclaim; 0 if there are none.",
	})
	unconfirmedNotices = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gpu_spot_reclaim_notices_unconfirmed",
		Help: "Pushed notices that are acted upon, but that no other source has confirmed: nothing is evicted for them yet. While ECS can be asked, this lasts for seconds only.",
	})
)

// RegisterMetrics registers the metrics of this package and those below it.
func RegisterMetrics(r prometheus.Registerer) {
	r.MustRegister(underWay, nextDeadline, unconfirmedNotices)
	notice.RegisterMetrics(r)
	poll.RegisterMetrics(r)
	push.RegisterMetrics(r)
	fault.RegisterMetrics(r)
	move.RegisterMetrics(r)
	drill.RegisterMetrics(r)
	mark.RegisterMetrics(r)
	handshake.RegisterMetrics(r)
	drain.RegisterMetrics(r)
}
