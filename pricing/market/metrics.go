package market

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

var (
	ageDesc = prometheus.NewDesc("gpu_spot_market_age_seconds",
		"Time since the instances were last read by which it is learnt how long offerings are kept.", nil, nil)
	offeringsDesc = prometheus.NewDesc("gpu_spot_market_offerings",
		"Spot offerings of which anything was seen in the last 30 days, by what was seen last: up, down, or stale if that is more than six hours ago.",
		[]string{"seen"}, nil)
	stockAgeDesc = prometheus.NewDesc("gpu_spot_market_stock_age_seconds",
		"Time since ECS last said what is in stock of all spot offerings. Missing until it has.", nil, nil)
	stockRefusalDesc = prometheus.NewDesc("gpu_spot_market_stock_refusal",
		"Probability that a purchase is refused, as learnt for each category of stock (StatusCategory of DescribeAvailableResource).", []string{"category"}, nil)
	strengthAgeDesc = prometheus.NewDesc("gpu_spot_market_strength_age_seconds",
		"Time since ESS last said of all spot pools how well their offerings can be had. Missing until it has.", nil, nil)
	strengthRefusalDesc = prometheus.NewDesc("gpu_spot_market_strength_refusal",
		"Probability that a purchase is refused, as learnt for each strength (ElasticStrength of DescribeElasticStrength), whatever the category.", []string{"strength"}, nil)
)

// published is the keeper that runs. It is asked when metrics are scraped, so that ages are right.
var published atomic.Pointer[Keeper]

// RegisterMetrics registers the metrics of this package. It panics if they are already registered.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(collector{}) }

type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	out <- ageDesc
	out <- offeringsDesc
	out <- stockAgeDesc
	out <- stockRefusalDesc
	out <- strengthAgeDesc
	out <- strengthRefusalDesc
}

// Collect implements prometheus.Collector.
func (collector) Collect(out chan<- prometheus.Metric) {
	keeper := published.Load()
	if keeper == nil {
		return
	}
	now := keeper.config.Clock.Now()
	m := keeper.config.Memory
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !m.now.IsZero() {
		out <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, now.Sub(m.now).Seconds())
	}
	if !m.stock.read.IsZero() {
		out <- prometheus.MustNewConstMetric(stockAgeDesc, prometheus.GaugeValue, now.Sub(m.stock.read).Seconds())
	}
	for _, category := range alicloud.StockCategories {
		out <- prometheus.MustNewConstMetric(stockRefusalDesc, prometheus.GaugeValue, m.stock.refusalIn(hint{category: category}), string(category))
	}
	if !m.stock.strengthRead.IsZero() {
		out <- prometheus.MustNewConstMetric(strengthAgeDesc, prometheus.GaugeValue, now.Sub(m.stock.strengthRead).Seconds())
	}
	for _, strength := range alicloud.Strengths {
		out <- prometheus.MustNewConstMetric(strengthRefusalDesc, prometheus.GaugeValue, m.stock.refusalIn(hint{strength: strength}), string(strength))
	}
	for seen, count := range m.past.counts(now.Unix()) {
		out <- prometheus.MustNewConstMetric(offeringsDesc, prometheus.GaugeValue, float64(count), seen)
	}
}

// counts returns how many offerings were last seen how.
func (p *past) counts(now int64) map[string]int {
	counts := map[string]int{"up": 0, "down": 0, "stale": 0}
	for _, runs := range p.runs {
		switch last := runs[len(runs)-1]; {
		case isStale(last.to, now):
			counts["stale"]++
		case last.up:
			counts["up"]++
		default:
			counts["down"]++
		}
	}
	return counts
}
