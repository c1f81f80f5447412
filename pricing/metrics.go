package pricing

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
)

var refreshErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "gpu_spot_price_refresh_errors_total",
	Help: "Failed looks at a price, by purchase option. The last good price stays in use.",
}, []string{"purchase_option"})

var (
	priceDesc = prometheus.NewDesc("gpu_spot_price_per_hour",
		"Last known price of an offering per instance-hour, in the account's currency, and of the on-demand instance that a spot one is compared with.",
		[]string{"instance_type", "zone", "purchase_option"}, nil)
	ageDesc = prometheus.NewDesc("gpu_spot_price_age_seconds",
		"Time since the price of an offering was last seen.",
		[]string{"instance_type", "zone", "purchase_option"}, nil)
	staleDesc = prometheus.NewDesc("gpu_spot_offerings_without_fresh_price",
		"Offerings whose price is unknown or older than --price-max-age: they are compared by the last known price, and not bought if they have a cap.", nil, nil)
)

// published is the book that runs. Its prices are read when metrics are scraped, so that ages are right and offerings that are gone
// disappear. Metrics are registered once in the life of a process, and there is a book only while it leads.
var published atomic.Pointer[Book]

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(refreshErrors, bookCollector{}) }

type bookCollector struct{}

// Describe implements prometheus.Collector.
func (bookCollector) Describe(out chan<- *prometheus.Desc) {
	out <- priceDesc
	out <- ageDesc
	out <- staleDesc
}

// Collect implements prometheus.Collector.
func (bookCollector) Collect(out chan<- prometheus.Metric) {
	book := published.Load()
	if book == nil {
		return
	}
	freshSince := book.freshSince()
	book.mu.RLock()
	defer book.mu.RUnlock()
	stale := 0
	shown := sets.New[Offering]()
	for o := range book.wanted.offerings {
		if _, fresh := book.prices.of(o, freshSince); !fresh {
			stale++
		}
		shown.Insert(o, Offering{InstanceType: o.InstanceType, Zone: o.Zone})
	}
	for o := range shown {
		found, ok := book.prices.exactly(o, ever)
		if !ok {
			continue
		}
		labels := []string{o.InstanceType, o.Zone, o.PurchaseOption()}
		out <- prometheus.MustNewConstMetric(priceDesc, prometheus.GaugeValue, found.price, labels...)
		out <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, book.options.Clock.Since(found.seen).Seconds(), labels...)
	}
	out <- prometheus.MustNewConstMetric(staleDesc, prometheus.GaugeValue, float64(stale))
}
