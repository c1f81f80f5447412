package app

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	nodeagent "gpu-spot-autoscaler/cmd/node-agent/app"
)

var update = flag.Bool("update", false, "write docs/metrics.md instead of comparing it")

// metric is what the page says of one.
type metric struct {
	name, kind, help, bound string
	labels                  []string
}

func TestThePageOfMetricsHasEveryMetricThatIsRegistered(t *testing.T) {
	const path = "../../../docs/metrics.md"
	want := page(ownMetrics(t), agentMetrics(t), coreMetrics(t))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, want == string(text), "docs/metrics.md is out of date: run make docs")
}

func TestEveryMetricWithLabelsHasABound(t *testing.T) {
	known := map[string]bool{}
	for _, factor := range factors {
		known[factor.name] = true
	}
	labelled := map[string]bool{}
	for _, m := range ownMetrics(t) {
		labelled[m.name] = len(m.labels) > 0
		assert.Equal(t, len(m.labels) > 0, bounds[m.name] != "", "%s%v: bounds has how many time series it has at most", m.name, m.labels)
	}
	for name, bound := range bounds {
		assert.True(t, labelled[name], "bounds has %s, which no metric with labels is called", name)
		for factor := range strings.SplitSeq(bound, " × ") {
			_, err := strconv.Atoi(factor)
			assert.True(t, err == nil || known[factor], "%s: %q is neither a number nor among factors", name, factor)
		}
	}
}

// collected keeps what is registered.
type collected struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

func (c *collected) MustRegister(more ...prometheus.Collector) {
	c.Registry.MustRegister(more...)
	c.collectors = append(c.collectors, more...)
}

// ownMetrics returns the metrics of this project in the autoscaler, by name.
func ownMetrics(t *testing.T) (metrics []metric) {
	t.Helper()
	registry := &collected{Registry: prometheus.NewRegistry()}
	registerOwnMetrics(registry)
	// client_golang's Desc has no other way out (v1.22.0, prometheus/desc.go).
	description := regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	for _, collector := range registry.collectors {
		descriptions := make(chan *prometheus.Desc, 10)
		go func() {
			defer close(descriptions)
			collector.Describe(descriptions)
		}()
		for each := range descriptions {
			found := description.FindStringSubmatch(each.String())
			require.NotNil(t, found, each.String())
			m := metric{name: unquoted(t, found[1]), help: unquoted(t, found[2])}
			m.kind, m.bound = kindOf(collector), bounds[m.name]
			if m.kind == "" {
				m.kind = madeWhenScraped[m.name]
			}
			require.NotEmpty(t, m.kind, "%s: madeWhenScraped has the types of metrics that are neither vector nor single", m.name)
			if found[3] != "" {
				m.labels = strings.Split(found[3], ",")
			}
			metrics = append(metrics, m)
		}
	}
	return sorted(metrics)
}

// kindOf returns the type of the collector's metrics, or "" if it is none of client_golang's.
func kindOf(collector prometheus.Collector) string {
	switch collector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec, prometheus.Gauge: // before Counter, of which a Gauge has all methods
		return "gauge"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Counter:
		return "counter"
	}
	return ""
}

// agentMetrics returns the metrics of the node-agent, by name.
func agentMetrics(t *testing.T) (metrics []metric) {
	t.Helper()
	var text bytes.Buffer
	nodeagent.WriteMetrics(&text)
	families, err := new(expfmt.TextParser).TextToMetricFamilies(&text)
	require.NoError(t, err)
	for name, family := range families {
		metrics = append(metrics, metric{name: name, kind: strings.ToLower(family.GetType().String()), help: family.GetHelp()})
	}
	return sorted(metrics)
}

// coreMetrics returns those of Cluster Autoscaler, by name, from its source: it keeps them to itself. Their help is its own, and not
// repeated.
func coreMetrics(t *testing.T) (metrics []metric) {
	t.Helper()
	found, err := gobuild.Import("k8s.io/autoscaler/cluster-autoscaler/metrics", ".", gobuild.FindOnly)
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(found.Dir, "metrics.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		made, ok := call.Fun.(*ast.SelectorExpr)
		pointer, isPointer := call.Args[0].(*ast.UnaryExpr)
		if !ok || !isPointer || !strings.HasPrefix(made.Sel.Name, "New") {
			return true
		}
		m := metric{kind: strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(made.Sel.Name, "New"), "Vec"))}
		ast.Inspect(pointer, func(node ast.Node) bool {
			if field, ok := node.(*ast.KeyValueExpr); ok && field.Key.(*ast.Ident).Name == "Name" {
				m.name = "cluster_autoscaler_" + unquoted(t, field.Value.(*ast.BasicLit).Value)
			}
			return true
		})
		for _, argument := range call.Args[1:] {
			for _, label := range argument.(*ast.CompositeLit).Elts {
				m.labels = append(m.labels, unquoted(t, label.(*ast.BasicLit).Value))
			}
		}
		metrics = append(metrics, m)
		return false
	})
	require.Greater(t, len(metrics), 30)
	return sorted(metrics)
}

func unquoted(t *testing.T, literal string) string {
	t.Helper()
	text, err := strconv.Unquote(literal)
	require.NoError(t, err)
	return text
}

func sorted(metrics []metric) []metric {
	slices.SortFunc(metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return metrics
}

// page returns docs/metrics.md.
func page(own, agent, core []metric) string {
	var text strings.Builder
	text.WriteString(`# Metrics

<!-- Written by make docs from what is registered. Change the help and the labels where a metric is defined, and the bound in
cmd/gpu-spot-autoscaler/app/metricsbounds_test.go. -->

What the autoscaler and the node-agent serve at ` + "`/metrics`" + `. [operations.md](operations.md#metrics) says which of them to look at,
[deploy/alerts.yaml](../deploy/alerts.yaml) has alerts on them, and [deploy/dashboards](../deploy/dashboards) shows them.

Counters begin at 0 with the process: take their ` + "`rate` or `increase`" + `. Only the replica that leads has pools, prices, jobs and reclaims
to count.

## The autoscaler

The last column is how many time series there are at most. A histogram has as many for each of its buckets, and two more. In it are

`)
	for _, factor := range factors {
		fmt.Fprintf(&text, "- *%s*: %s\n", factor.name, factor.meaning)
	}
	text.WriteString("\n| metric | type | labels | meaning | at most |\n|---|---|---|---|---|\n")
	for _, m := range own {
		bound := m.bound
		if len(m.labels) == 0 {
			bound = "1"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, inCode(m.labels), m.help, bound)
	}
	text.WriteString(`
## The node-agent

Each is one time series of each agent. Its address says on which node it runs.

| metric | type | meaning |
|---|---|---|
`)
	for _, m := range agent {
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", m.name, m.kind, m.help)
	}
	text.WriteString(`
## Cluster Autoscaler

The autoscaler serves these too. [Cluster Autoscaler explains
them](https://github.com/kubernetes/autoscaler/blob/cluster-autoscaler-1.33.0/cluster-autoscaler/proposals/metrics.md). A node group is an
offering here; those with the label ` + "`node_group`" + ` are there only with ` + "`--emit-per-nodegroup-metrics`" + `.

| metric | type | labels |
|---|---|---|
`)
	for _, m := range core {
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", m.name, m.kind, inCode(m.labels))
	}
	text.WriteString("\nBeside them there are those of Go, of the process, of the Kubernetes client (`rest_client_*`) and of leader election\n(`leader_election_*`).\n")
	return text.String()
}

// inCode returns the labels as Markdown.
func inCode(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return "`" + strings.Join(labels, "`, `") + "`"
}
