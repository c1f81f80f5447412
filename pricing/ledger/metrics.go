package ledger

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var saveErrors = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "gpu_spot_cost_ledger_save_errors_total",
	Help: "Failed attempts to save the cost ledger. It is counted on from what was saved last.",
})

var (
	costDesc = prometheus.NewDesc("gpu_spot_cost_total",
		"What the instances of a pool have cost since the cost ledger began, in the account's currency.", []string{"pool", "purchase_option"}, nil)
	onDemandDesc = prometheus.NewDesc("gpu_spot_on_demand_cost_total",
		"What the same instances would have cost on demand.", []string{"pool", "purchase_option"}, nil)
	gpuHoursDesc = prometheus.NewDesc("gpu_spot_gpu_hours_total",
		"GPU-hours of the instances of a pool, by use: requested by pods, idle, or under reclaim, used or not.", []string{"pool", "use"}, nil)
	namespaceDesc = prometheus.NewDesc("gpu_spot_namespace_cost_total",
		"What the pods of a namespace have cost since the cost ledger began, in the account's currency. It is told of the 100 namespaces of the highest cost.",
		[]string{"namespace"}, nil)
)

// mostNamespaces bounds the metrics.
const mostNamespaces = 100

// published is the ledger that runs.
var published atomic.Pointer[Ledger]

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(saveErrors, collector{}) }

type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{costDesc, onDemandDesc, gpuHoursDesc, namespaceDesc} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(out chan<- prometheus.Metric) {
	ledger := published.Load()
	if ledger == nil {
		return
	}
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
	}
	report := ledger.Report()
	for key, amounts := range report.byPool(func(o Offering) [2]string { return [2]string{o.Pool, o.PurchaseOption} }) {
		counter(costDesc, amounts.Cost, key[0], key[1])
		counter(onDemandDesc, amounts.OnDemand, key[0], key[1])
	}
	for key, amounts := range report.byPool(func(o Offering) [2]string { return [2]string{o.Pool} }) {
		counter(gpuHoursDesc, amounts.Used, key[0], "used")
		counter(gpuHoursDesc, max(0, amounts.GPUHours-amounts.Used), key[0], "idle")
		counter(gpuHoursDesc, amounts.Reclaiming, key[0], "reclaiming")
	}
	for _, line := range report.Namespaces[:min(mostNamespaces, len(report.Namespaces))] {
		counter(namespaceDesc, line.Cost, line.Namespace)
	}
}

// byPool adds up offerings.
func (r Report) byPool(key func(Offering) [2]string) map[[2]string]Amounts {
	sums := map[[2]string]Amounts{}
	for _, line := range r.Offerings {
		k := key(line.Offering)
		sums[k] = sums[k].plus(line.Amounts)
	}
	return sums
}
