// Package prometheus_test reads the queries of the alerts and of the dashboards as Prometheus does.
package prometheus_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// metric is what docs/metrics.md says of one.
type metric struct {
	kind   string
	labels []string
}

// ofTargets are the labels that Prometheus and the Prometheus operator attach to what they scrape.
var ofTargets = []string{"job", "instance"}

// registered returns the metrics of docs/metrics.md by the names of their time series. A test of the autoscaler holds the page to what is
// registered.
func registered(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]metric{}
	labelled := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| metric |") {
			labelled = strings.HasPrefix(line, "| metric | type | labels |")
		}
		row := strings.Split(strings.TrimSpace(line), " | ")
		name := regexp.MustCompile("^\\| `(\\w+)`$").FindStringSubmatch(row[0])
		if name == nil {
			continue
		}
		m := metric{kind: row[1]}
		if labelled {
			for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
				m.labels = append(m.labels, label[1])
			}
		}
		if m.kind != "histogram" {
			found[name[1]] = m
			continue
		}
		found[name[1]+"_sum"], found[name[1]+"_count"] = metric{"counter", m.labels}, metric{"counter", m.labels}
		found[name[1]+"_bucket"] = metric{"counter", append(slices.Clone(m.labels), "le")}
	}
	if len(found) < 100 {
		t.Fatalf("only %d time series are found", len(found))
	}
	return found
}

// query is one of the shipped ones, with where it stands.
type query struct{ at, text string }

// shipped returns all queries of alerts and dashboards.
func shipped(t *testing.T) (queries []query) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var alerts struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &alerts); err != nil {
		t.Fatal(err)
	}
	for _, group := range alerts.Spec.Groups {
		for _, rule := range group.Rules {
			queries = append(queries, query{"alert " + rule.Alert, rule.Expr})
		}
	}
	dashboards, err := filepath.Glob(filepath.Join(root, "deploy", "dashboards", "*.json"))
	if err != nil || len(dashboards) == 0 || len(queries) == 0 {
		t.Fatalf("found %d dashboards and %d alerts: %v", len(dashboards), len(queries), err)
	}
	for _, path := range dashboards {
		queries = append(queries, ofDashboard(t, path)...)
	}
	return queries
}

// variable is what a dashboard asks Prometheus for to fill one of its variables.
var variable = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// ofDashboard returns the queries of the dashboard, those of its variables included.
func ofDashboard(t *testing.T, path string) (queries []query) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, RefID string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(path, err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, query{fmt.Sprintf("%s, %s, %s", filepath.Base(path), panel.Title, target.RefID), target.Expr})
		}
	}
	for _, each := range dashboard.Templating.List {
		if each.Type != "query" {
			continue
		}
		parts := variable.FindStringSubmatch(each.Definition)
		if parts == nil {
			t.Fatalf("%s: variable %s is not of the form %s", path, each.Name, variable)
		}
		queries = append(queries, query{filepath.Base(path) + ", variable " + each.Name, fmt.Sprintf("count by (%s) (%s)", parts[2], parts[1])})
	}
	return queries
}

// asSent puts something in the place of Grafana's variables.
func asSent(text string) string {
	return strings.NewReplacer("$__rate_interval", "2m0s", "$__range", "21600s", "$job", ".*", "$pool", ".*").Replace(text)
}

func TestEveryQueryReadsMetricsThatExistByLabelsThatTheyHave(t *testing.T) {
	metrics := registered(t)
	for _, q := range shipped(t) {
		text := asSent(q.text)
		if strings.Contains(text, "$") {
			t.Errorf("%s: a variable is left: %s", q.at, text)
		}
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", q.at, err, text)
			continue
		}
		for _, wrong := range wrongIn(expression, metrics) {
			t.Errorf("%s: %s\n%s", q.at, wrong, text)
		}
	}
}

// wrongIn returns what the expression reads that no metric has.
func wrongIn(expression parser.Expr, metrics map[string]metric) (wrong []string) {
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			m, exists := metrics[n.Name]
			if !exists {
				wrong = append(wrong, fmt.Sprintf("there is no %s in docs/metrics.md", n.Name))
				return nil
			}
			for _, matcher := range n.LabelMatchers {
				if matcher.Name != "__name__" && !has(m, matcher.Name) {
					wrong = append(wrong, fmt.Sprintf("%s has no label %s", n.Name, matcher.Name))
				}
			}
			if growing := isGrowth(path); growing != (m.kind == "counter") {
				wrong = append(wrong, fmt.Sprintf("%s is a %s: growth is of counters, and only what is new of a counter is read as it is", n.Name, m.kind))
			}
		case *parser.AggregateExpr:
			wrong = append(wrong, unknown(n.Expr, n.Grouping, metrics)...)
			if path := append(slices.Clone(path), n); isQuantile(path) && !slices.Contains(n.Grouping, "le") {
				wrong = append(wrong, "a quantile needs the label le")
			}
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				wrong = append(wrong, unknown(n, slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include), metrics)...)
			}
		}
		return nil
	})
	return wrong
}

func has(m metric, label string) bool {
	return slices.Contains(m.labels, label) || slices.Contains(ofTargets, label)
}

// unknown returns those of the labels that a metric in the expression does not have.
func unknown(expression parser.Expr, labels []string, metrics map[string]metric) (wrong []string) {
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			for _, label := range labels {
				if m, exists := metrics[selector.Name]; exists && !has(m, label) {
					wrong = append(wrong, fmt.Sprintf("%s has no label %s", selector.Name, label))
				}
			}
		}
		return nil
	})
	return wrong
}

// isGrowth returns whether a selector is read for how much it grows: by rate or increase, or for what is new in it (x unless x offset …).
func isGrowth(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(node parser.Node) bool {
		switch n := node.(type) {
		case *parser.Call:
			return n.Func.Name == "rate" || n.Func.Name == "increase"
		case *parser.BinaryExpr:
			return n.Op == parser.LUNLESS
		}
		return false
	})
}

// isQuantile returns whether the last node of the path is what a quantile is taken of.
func isQuantile(path []parser.Node) bool {
	for _, node := range slices.Backward(path[:len(path)-1]) {
		switch n := node.(type) {
		case *parser.Call:
			return n.Func.Name == "histogram_quantile"
		case *parser.AggregateExpr:
			return false
		}
	}
	return false
}

func TestQueriesThatAreWrongAreFound(t *testing.T) {
	metrics := map[string]metric{
		"level": {"gauge", []string{"pool"}}, "events_total": {"counter", []string{"code"}}, "took_seconds_bucket": {"counter", []string{"le"}},
	}
	for text, want := range map[string]string{
		`sum by (pool) (level{job="a"})`:                                                  "",
		`sum(rate(events_total{code="x"}[5m])) or vector(0)`:                              "",
		`sum((events_total unless events_total offset 5m) or increase(events_total[5m]))`: "",
		`histogram_quantile(0.9, sum by (le) (rate(took_seconds_bucket[5m])))`:            "",
		`levels`:                  "there is no levels",
		`level{code="x"}`:         "level has no label code",
		`sum by (code) (level)`:   "level has no label code",
		`level / on (code) level`: "level has no label code",
		`events_total`:            "is a counter",
		`rate(level[5m])`:         "is a gauge",
		`histogram_quantile(0.9, sum(rate(took_seconds_bucket[5m])))`: "needs the label le",
	} {
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatal(text, err)
		}
		if found := strings.Join(wrongIn(expression, metrics), "; "); want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", text, found, want)
		}
	}
}
