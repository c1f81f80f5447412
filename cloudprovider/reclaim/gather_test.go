package reclaim

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const sourcePoll = string(notice.SourcePoll)

// metric returns the metric of that name with exactly these values of its labels, in any order. It is empty if there is none yet.
func metric(t *testing.T, name string, labels ...string) *dto.Metric {
	t.Helper()
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if len(metric.GetLabel()) == len(labels) && !slices.ContainsFunc(metric.GetLabel(), func(pair *dto.LabelPair) bool {
				return !slices.Contains(labels, pair.GetValue())
			}) {
				return metric
			}
		}
	}
	return &dto.Metric{}
}

// value returns that of a counter or a gauge.
func value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	m := metric(t, name, labels...)
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// observed is what a histogram has observed since it was made.
type observed struct {
	t      *testing.T
	name   string
	labels []string
	count  uint64
	sum    float64
}

func observe(t *testing.T, name string, labels ...string) *observed {
	t.Helper()
	before := metric(t, name, labels...).GetHistogram()
	return &observed{t: t, name: name, labels: labels, count: before.GetSampleCount(), sum: before.GetSampleSum()}
}

func (o *observed) since() (count int, sum float64) {
	o.t.Helper()
	now := metric(o.t, o.name, o.labels...).GetHistogram()
	return int(now.GetSampleCount() - o.count), now.GetSampleSum() - o.sum
}

// one returns the only observation.
func (o *observed) one() float64 {
	o.t.Helper()
	count, sum := o.since()
	require.Equal(o.t, 1, count, "observations of %s", o.name)
	return sum
}
