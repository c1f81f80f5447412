package alicloud

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_cloud_request_duration_seconds",
		Help:    "Time from sending a request to Alibaba Cloud to having its whole reply, by service, action and error code (OK where it succeeded). Every attempt counts.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"service", "action", "code"})

	throttleSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gpu_spot_cloud_throttle_wait_seconds",
		Help:    "Time a request was held back to stay within Alibaba Cloud's rate limit, by service and action.",
		Buckets: []float64{.001, .01, .1, .5, 1, 5, 15, 60},
	}, []string{"service", "action"})
)

// RegisterMetrics makes this package's metrics known to r. It panics where they are already known, as MustRegister does.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(requestSeconds, throttleSeconds) }

// codeLabel keeps the number of label values bounded: codes this package does not know fall under "Other".
func codeLabel(err error) string {
	if err == nil {
		return "OK"
	}
	var e *Error
	if errors.As(err, &e) {
		if _, known := classOfCode[e.Code]; known {
			return e.Code
		}
	}
	return "Other"
}
