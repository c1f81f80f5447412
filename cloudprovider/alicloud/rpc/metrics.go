package rpc

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

var (
	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_cloud_request_duration_seconds",
		Help:    "Time from sending a request to Alibaba Cloud to having its whole reply, by service, action and error code (OK if it succeeded). Every attempt counts.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"service", "action", "code"})

	throttleSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_cloud_throttle_wait_seconds",
		Help:    "Time a request was held back to stay within Alibaba Cloud's rate limit, by service and action.",
		Buckets: []float64{.001, .01, .1, .5, 1, 5, 15, 60},
	}, []string{"service", "action"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are registered already, as MustRegister does.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(requestSeconds, throttleSeconds) }

// codeLabel bounds the number of label values: "OK", the codes that package alicloud knows, and "Other".
func codeLabel(err error) string {
	if err == nil {
		return "OK"
	}
	return alicloud.LabelOf(alicloud.CodeOf(err))
}
