package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// dashboard is what the tests read of a dashboard of Grafana.
type dashboard struct {
	ID            *int
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Datasource map[string]string
		}
	}
}

type panel struct {
	ID                       int
	Title, Description, Type string
	Datasource               map[string]string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Datasource  map[string]string
		Expr, RefID string
	}
}

// dashboards returns the text of deploy/dashboards by file name.
func dashboards(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("dashboards/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	found := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found[filepath.Base(path)] = string(text)
	}
	return found
}

func TestDashboardsCanBeImportedIntoAnyGrafana(t *testing.T) {
	core := sets.New("barchart", "bargauge", "gauge", "heatmap", "histogram", "piechart", "row", "stat", "state-timeline", "table", "text", "timeseries")
	chosen := map[string]string{"type": "prometheus", "uid": "${datasource}"}
	uids, titles := sets.New[string](), sets.New[string]()
	for name, text := range dashboards(t) {
		var d dashboard
		require.NoError(t, json.Unmarshal([]byte(text), &d), name)
		assert.Nil(t, d.ID, "%s: an id is that of one Grafana", name)
		assert.GreaterOrEqual(t, d.SchemaVersion, 39, name)
		assert.Regexp(t, regexp.MustCompile(`^gpu-spot-[a-z-]{1,31}$`), d.UID, name)
		assert.False(t, uids.Has(d.UID) || titles.Has(d.Title), "%s: two are called the same", name)
		uids.Insert(d.UID)
		titles.Insert(d.Title)
		assert.NotContains(t, text, "__inputs", "%s: what is exported for others cannot be provisioned", name)
		require.NotEmpty(t, d.Templating.List, name)
		assert.Equal(t, "datasource", d.Templating.List[0].Type, "%s: the first variable, which the others use", name)
		assert.Equal(t, "prometheus", d.Templating.List[0].Query, name)
		for _, variable := range d.Templating.List[1:] {
			assert.Equal(t, chosen, variable.Datasource, "%s: variable %s", name, variable.Name)
		}
		ids := sets.New[int]()
		cells := map[[2]int]string{}
		for _, p := range d.Panels {
			assert.True(t, core.Has(p.Type), "%s: %s is a plugin, %s", name, p.Type, p.Title)
			assert.False(t, ids.Has(p.ID), "%s: two panels have the id of %s", name, p.Title)
			ids.Insert(p.ID)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					assert.Empty(t, cells[[2]int{x, y}], "%s: %s covers it", name, p.Title)
					cells[[2]int{x, y}] = p.Title
				}
			}
			assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, "%s: %s", name, p.Title)
			if p.Type == "row" {
				continue
			}
			assert.NotEmpty(t, p.Title, name)
			assert.NotEmpty(t, p.Description, "%s: %s", name, p.Title)
			assert.Equal(t, chosen, p.Datasource, "%s: %s", name, p.Title)
			require.NotEmpty(t, p.Targets, "%s: %s", name, p.Title)
			for _, target := range p.Targets {
				assert.Equal(t, chosen, target.Datasource, "%s: %s", name, p.Title)
				assert.NotEmpty(t, target.Expr, "%s: %s", name, p.Title)
			}
		}
	}
}

func TestTheChartInstallsTheDashboardsWhereTheSidecarFindsThem(t *testing.T) {
	for _, object := range render(t) {
		_, is := object.(*corev1.ConfigMap)
		assert.False(t, is, "they are installed only where they are asked for")
	}
	files := dashboards(t)
	installed := map[string]*corev1.ConfigMap{}
	for _, object := range render(t, "dashboards.enabled=true", "dashboards.namespace=monitoring", "dashboards.annotations.folder=GPU", "dashboards.labels.team=ml") {
		if configMap, ok := object.(*corev1.ConfigMap); ok {
			require.Len(t, configMap.Data, 1)
			for name, text := range configMap.Data {
				installed[strings.TrimPrefix(name, "gpu-spot-")] = configMap
				assert.JSONEq(t, files[strings.TrimPrefix(name, "gpu-spot-")], text, name)
			}
		}
	}
	assert.Equal(t, sets.KeySet(files), sets.KeySet(installed), "deploy/dashboards are the chart's: run make manifests")
	for name, configMap := range installed {
		assert.Equal(t, "1", configMap.Labels["grafana_dashboard"], name)
		assert.Equal(t, "ml", configMap.Labels["team"], name)
		assert.Equal(t, "gpu-spot-autoscaler", configMap.Labels["app.kubernetes.io/name"], name)
		assert.Equal(t, "GPU", configMap.Annotations["folder"], name)
		assert.Equal(t, "monitoring", configMap.Namespace, name)
	}
	for _, object := range render(t, "dashboards.enabled=true") {
		if configMap, ok := object.(*corev1.ConfigMap); ok {
			assert.Equal(t, "kube-system", configMap.Namespace)
		}
	}
}

// Metrics have labels that are called as those that the operator attaches to targets, and alerts and dashboards read the metrics'.
func TestTheServiceMonitorKeepsTheLabelsOfTheMetrics(t *testing.T) {
	for _, values := range [][]string{{"serviceMonitor.enabled=true"}, {"serviceMonitor.enabled=true", "secureServing.enabled=true"}} {
		text, err := helm(t, values...)
		require.NoError(t, err)
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var monitor struct {
				Kind string
				Spec struct{ Endpoints []struct{ HonorLabels bool } }
			}
			require.NoError(t, documents.Decode(&monitor), "there is no ServiceMonitor")
			if monitor.Kind == "ServiceMonitor" {
				require.Len(t, monitor.Spec.Endpoints, 1)
				assert.True(t, monitor.Spec.Endpoints[0].HonorLabels, values)
				break
			}
		}
	}
}

func TestDashboardsOfTwoReleasesAreTwo(t *testing.T) {
	files, uids, titles := sets.New[string](), sets.New[string](), sets.New[string]()
	count := 0
	for _, release := range []string{"gpu-spot-autoscaler", "gpu-spot", "a-release-whose-name-is-longer-than-a-uid-may-be"} {
		for _, object := range render(t, "dashboards.enabled=true", "fullnameOverride="+release) {
			configMap, ok := object.(*corev1.ConfigMap)
			if !ok {
				continue
			}
			count++
			for file, text := range configMap.Data {
				var d dashboard
				require.NoError(t, json.Unmarshal([]byte(text), &d), file)
				files.Insert(file)
				uids.Insert(d.UID)
				titles.Insert(d.Title)
				assert.LessOrEqual(t, len(d.UID), 40, "Grafana takes no longer ones")
				assert.Equal(t, release != "gpu-spot-autoscaler", strings.HasPrefix(d.Title, "GPU Spot "+release+" / "), d.Title)
			}
		}
	}
	assert.Len(t, files, count, "the sidecar would write one over the other: %v", sets.List(files))
	assert.Len(t, uids, count)
	assert.Len(t, titles, count)
}
