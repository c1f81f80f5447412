package explain

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

var pendingDesc = prometheus.NewDesc("gpu_spot_pending_pods",
	"Pods that request GPUs and are on no node, by the code of the reason for which they wait, as explain names it; bought: an instance was bought, and its node is to come.",
	[]string{"reason"}, nil)

// published is the explainer of the process while it leads. Pods are counted when metrics are scraped.
var published atomic.Pointer[Explainer]

// Publish has the metrics tell of the explainer from now on until ctx ends.
func (e *Explainer) Publish(ctx context.Context) {
	published.Store(e)
	context.AfterFunc(ctx, func() { published.CompareAndSwap(e, nil) })
}

// RegisterMetrics registers the metrics of this package. It panics if they are registered already, as MustRegister does.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(pendingCollector{}) }

type pendingCollector struct{}

// Describe implements prometheus.Collector.
func (pendingCollector) Describe(out chan<- *prometheus.Desc) { out <- pendingDesc }

// Collect implements prometheus.Collector.
func (pendingCollector) Collect(out chan<- prometheus.Metric) {
	explainer := published.Load()
	if explainer == nil {
		return
	}
	counts, err := explainer.PendingGPUPods()
	if err != nil {
		klog.ErrorS(err, "Cannot count the pods that wait")
		return
	}
	for code, n := range counts {
		out <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(n), string(code))
	}
}
