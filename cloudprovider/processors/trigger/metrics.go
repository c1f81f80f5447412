package trigger

import "github.com/prometheus/client_golang/prometheus"

var wakeups = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "gpu_spot_loop_wakeups_total",
	Help: "Loops started, by what started them: pod (one became unschedulable), gang (one is known that was not), settled (a settle window ended), notified (such as by a reclaim), productive (the loop before did something) or interval.",
}, []string{"reason"})

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(wakeups) }
