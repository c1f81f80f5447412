package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// docs is all that users read.
func docs(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var text strings.Builder
	for _, path := range append(paths, "../README.md", "examples/README.md") {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		text.Write(page)
	}
	return text.String()
}

func firstGroups(matches [][]string) sets.Set[string] {
	found := sets.New[string]()
	for _, match := range matches {
		found.Insert(match[1])
	}
	return found
}

func TestTheDocsExplainEveryKeyThatExistsAndNoOther(t *testing.T) {
	text := docs(t)
	inCode := firstGroups(inSource(t, regexp.MustCompile(`"`+regexp.QuoteMeta(api.Prefix)+`([a-z-]+)[/_]?"`), "../cloudprovider/api"))
	inCode.Insert("label", "taint", "resources") // the provider reads what follows them as Cluster Autoscaler does

	const key = `[a-z][a-z-]*[a-z]`
	named := firstGroups(regexp.MustCompile(`gpu-spot\.autoscaling/(`+key+`)`).FindAllStringSubmatch(text, -1))
	shortened := firstGroups(regexp.MustCompile("`…/("+key+")`").FindAllStringSubmatch(text, -1))

	for name := range inCode.Difference(named.Union(shortened)) {
		// The first never leaves the process; the notes of the controllers to themselves are explained as such.
		own := name == "whole-pool" || strings.HasPrefix(name, "reclaim-") || strings.HasPrefix(name, "held-")
		assert.True(t, own, "%s is not explained", name)
	}
	for name := range named.Difference(inCode) {
		assert.Equal(t, "reclaim", name, "it is explained, but known to nobody")
	}
}

func TestTheDocsNameTheVersionsOfKubernetesThatTheEndToEndTestsRunOn(t *testing.T) {
	modules, err := filepath.Glob("../test/cluster/controlplane/*.mod")
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	for _, path := range modules {
		module, err := os.ReadFile(path)
		require.NoError(t, err)
		version := regexp.MustCompile(`k8s\.io/kubernetes v(\S+)`).FindSubmatch(module)
		require.NotNil(t, version, path)
		for _, page := range []string{"../README.md", "../docs/install.md", "../docs/operations.md"} {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			assert.True(t, strings.Contains(string(text), string(version[1])), "%s does not name %s", page, version[1])
		}
	}
}

func TestTheImagesOfTheGuideAreThoseOfTheChart(t *testing.T) {
	text, err := os.ReadFile("chart/gpu-spot-autoscaler/Chart.yaml")
	require.NoError(t, err)
	var chart struct{ Version, AppVersion string }
	require.NoError(t, yaml.Unmarshal(text, &chart))
	assert.Equal(t, chart.Version, chart.AppVersion, "they are released together")
	for _, page := range []string{"../docs/ack.md", "../docs/zh-CN/ack.md", "../docs/install.md", "../docs/zh-CN/install.md", "../docs/node-agent.md", "../docs/zh-CN/node-agent.md", "Dockerfile"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		tags := firstGroups(regexp.MustCompile(`/?gpu-spot-(?:autoscaler|node-agent)[:-](\d+\.\d+\.\d+)`).FindAllStringSubmatch(string(text), -1))
		assert.Equal(t, []string{chart.AppVersion}, sets.List(tags), page)
	}
}

func TestTheDocsExplainEveryMetricThatExistsAndNoOther(t *testing.T) {
	inCode := sets.New[string]()
	for _, directory := range []string{"../cloudprovider", "../cmd", "../pricing"} {
		inCode = inCode.Union(firstGroups(inSource(t, regexp.MustCompile(`"(`+api.MetricPrefix+`\w+)"`), directory)))
	}
	explained := firstGroups(regexp.MustCompile(`\b(`+api.MetricPrefix+`\w+)`).FindAllStringSubmatch(docs(t), -1))
	explained.Delete("gpu_spot_malformed_wish_pods_total") // the former name of one, in docs/upgrade.md
	assert.Equal(t, sets.List(inCode), sets.List(explained))
}

func TestTheDocsExplainEveryEventThatExistsAndNoOther(t *testing.T) {
	reason, other := regexp.MustCompile(`"(Spot[A-Z][A-Za-z]+)"`), regexp.MustCompile(`Eventf\([^"\n]*"([A-Z][A-Za-z]+)"`)
	inCode := sets.New[string]()
	for _, directory := range []string{"../cloudprovider", "../cmd", "../pricing"} {
		inCode = inCode.Union(firstGroups(inSource(t, reason, directory))).Union(firstGroups(inSource(t, other, directory)))
	}
	// What Alibaba Cloud calls so, and what Volcano is told.
	inCode.Delete("SpotAsPriceGo", "SpotWithPriceLimit", "SpotInstanceRemedy", "SpotDuration", "SpotPriceLimit", "SpotStrategy", "SpotInterruptionBehavior", "SpotReclaim")

	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	explained := sets.New[string]()
	for _, row := range regexp.MustCompile(`(?m)^\| ((?:[A-Z][a-zA-Z]+(?:, )?)+) \|`).FindAllStringSubmatch(string(page), -1) {
		explained.Insert(strings.Split(row[1], ", ")...)
	}
	assert.Equal(t, sets.List(inCode), sets.List(explained))
}

func TestEveryAlertHasARunbookAndItsAddress(t *testing.T) {
	alerts, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	assert.NotContains(t, string(alerts), "runbook_url", "without an address there is none")
	names := firstGroups(regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1))
	require.NotEmpty(t, names)

	pages, err := filepath.Glob("../docs/runbooks/*.md")
	require.NoError(t, err)
	written := sets.New[string]()
	for _, page := range pages {
		written.Insert(strings.TrimSuffix(filepath.Base(page), ".md"))
	}
	assert.Equal(t, sets.List(names), sets.List(written.Delete("README")))

	rendered, err := helm(t, "alerts.enabled=true", "alerts.runbooks=https://git.example.com/runbooks/")
	require.NoError(t, err)
	for _, document := range strings.Split(string(rendered), "\n---\n") {
		if !strings.Contains(document, "kind: PrometheusRule") {
			continue
		}
		var rule struct {
			Spec struct {
				Groups []struct {
					Rules []struct {
						Alert       string
						Annotations map[string]string
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &rule))
		for _, each := range rule.Spec.Groups[0].Rules {
			assert.NotEmpty(t, each.Annotations["summary"], each.Alert)
			assert.Equal(t, "https://git.example.com/runbooks/"+each.Alert+".md", each.Annotations["runbook_url"])
			names.Delete(each.Alert)
		}
	}
	assert.Empty(t, names, "all are rendered")
}
