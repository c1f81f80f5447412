package rpc

import (
	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

var (
	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_cloud_request_duration_seconds",
		Help:    "Time from sending a request to Alibaba Cloud to having its whole reply, by service, action, error code (OK if it succeeded, and if a dry run passed) and class of the error. Every attempt counts.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"service", "action", "code", "class"})

	throttleSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_cloud_throttle_wait_seconds",
		Help:    "Time a request was held back to stay within Alibaba Cloud's rate limit, by service and action.",
		Buckets: []float64{.001, .01, .1, .5, 1, 5, 15, 60},
	}, []string{"service", "action"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are registered already, as MustRegister does.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(requestSeconds, throttleSeconds) }

// labelsOf returns the code and class of the answer to a request. A dry run that passes is answered by an error, and is none. The number of
// codes is bounded: "OK", those that package alicloud knows, and "Other".
func labelsOf(err error) (code, class string) {
	if err == nil || alicloud.CodeOf(err) == alicloud.CodeDryRun {
		return "OK", ""
	}
	return alicloud.LabelOf(alicloud.CodeOf(err)), string(alicloud.ClassOf(err))
}
