package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// soon is for what takes seconds, on a machine that has other things to do.
const soon = 2 * time.Minute

// quiet are the queries, by their names, that find nothing after a scale-up and a reclaim that went well, and why.
var quiet = map[string]string{
	"cloud-calls, Calls that fail, by action and code (timeseries), A": "no request fails",
	"cloud-calls, Problems (timeseries), A":                            "there is none",
	"jobs, Jobs that could not be prepared (timeseries), A":            "the job is suspended at the first attempt",
	"jobs, Waits that expired (timeseries), A":                         "the job has no maximum wait",
	"offerings, Failed reads of prices (timeseries), A":                "no request fails",
	"offerings, Problems of pools (table), A":                          "the pool is in order",
	"reclaims, Faulty nodes (timeseries), A":                           "no node has a condition of a fault",
	"reclaims, Pushed events (timeseries), A":                          "nothing pushes notices",
	"reclaims, Signatures of pushed requests (timeseries), A":          "nothing pushes notices",
	"reclaims, What the poll missed (timeseries), B":                   "the poll sees the notice",
	"scale-ups, Instances given back (timeseries), B":                  "no removal fails",
	"scale-ups, What went wrong besides (timeseries), A":               "no purchase is given up",
	"scale-ups, What went wrong besides (timeseries), B":               "the pool buys spot instances only",
	"scale-ups, What went wrong besides (timeseries), C":               "each purchase has its note",
}

// query is one of a dashboard. Its name is that of the dashboard, of the panel with its type, and the letter in it. Its columns are the
// labels by which the panel shows it.
type query struct {
	name, text string
	columns    []string
}

// queries returns those of all dashboards.
func queries(t *testing.T) (found []query) {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/dashboards/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var dashboard struct {
			Panels []struct {
				Title, Type     string
				Targets         []struct{ RefID, Expr, LegendFormat string }
				Transformations []struct {
					Options struct{ Include struct{ Names []string } }
				}
			}
			Templating struct {
				List []struct{ Name, Definition string }
			}
		}
		require.NoError(t, json.Unmarshal(text, &dashboard))
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		for _, panel := range dashboard.Panels {
			var columns []string
			for _, transformation := range panel.Transformations {
				for _, column := range transformation.Options.Include.Names {
					if !strings.HasPrefix(column, "Value") {
						columns = append(columns, column)
					}
				}
			}
			for _, target := range panel.Targets {
				q := query{name + ", " + panel.Title + " (" + panel.Type + "), " + target.RefID, target.Expr, slices.Clone(columns)}
				for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					q.columns = append(q.columns, label[1])
				}
				found = append(found, q)
			}
		}
		for _, variable := range dashboard.Templating.List {
			if parts := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(variable.Definition); parts != nil {
				found = append(found, query{name + ", variable " + variable.Name, parts[1], parts[2:]})
			}
		}
	}
	return found
}

func TestEveryPanelOfTheDashboardsShowsALivingAutoscaler(t *testing.T) {
	rig.Long(t)
	prometheus := startPrometheus(t)
	began := time.Now()
	autoscaler := liveThroughAReclaim(t, prometheus)
	names := sets.New[string]()
	for _, q := range queries(t) {
		names.Insert(q.name)
		ended := time.Now()
		text := strings.NewReplacer("$__rate_interval", "10s", "$__range", fmt.Sprintf("%.0fs", ended.Sub(began).Seconds()), "$job", ".*", "$pool", ".*").Replace(q.text)
		answer, err := prometheus.queryRange(t.Context(), text, began, ended)
		if !assert.NoError(t, err, "%s: %s", q.name, text) {
			continue
		}
		assert.Equal(t, quiet[q.name] == "", !isEmpty(answer), "%s: whether there is something to be seen: %s\n%v", q.name, text, answer)
		for _, each := range answer {
			for _, column := range q.columns {
				assert.NotEmpty(t, each.Labels[column], "%s shows the label %s: %s\n%v", q.name, column, text, each.Labels)
			}
		}
	}
	for name := range quiet {
		assert.True(t, names.Has(name), "there is no query %s", name)
	}
	assertPageOfMetrics(t, autoscaler)
}

// isEmpty returns whether there is no number in the answer.
func isEmpty(answer []series) bool {
	for _, each := range answer {
		for _, value := range each.Values {
			if value[1] != "NaN" {
				return false
			}
		}
	}
	return true
}

// liveThroughAReclaim runs an autoscaler with a training job through a scale-up, for which the cheapest zone has no stock, and a reclaim, which
// moves a pod of no job, too, with Prometheus watching it and a node-agent.
func liveThroughAReclaim(t *testing.T, prometheus *server) *rig.Autoscaler {
	t.Helper()
	const pool, instanceType, zone, emptyZone = "asg-1", "ecs.gn7i-c8g1.2xlarge", "ap-southeast-1a", "ap-southeast-1b"
	world := alisim.NewWorld("ap-southeast-1", zone, emptyZone)
	world.Pools = []alisim.Pool{rig.SpotPool(pool, 10, []string{instanceType}, []string{"vsw-a", "vsw-b"})}
	second := metav1.Duration{Duration: time.Second}
	world.ActivityDelay, world.BootDelay, world.DriverDelay, world.ListLag, world.NodeGrace = second, second, second, second, second
	world.NoticePeriod = metav1.Duration{Duration: time.Minute}
	r := rig.ForTest(t, world)
	r.Cloud.SetPrice(instanceType, zone, 4, 10)
	r.Cloud.SetPrice(instanceType, emptyZone, 1, 10)
	r.Cloud.SetStock(instanceType, emptyZone, 0)
	r.InstallNodeAgent(t)
	autoscaler := r.RunAutoscaler(t, "--reclaim-notice-period=1m", "--reclaim-poll-interval=1s")
	// The labels are those that the Prometheus operator attaches to what a ServiceMonitor selects.
	prometheus.scrape(t, "autoscaler", target{autoscaler.Address(), map[string]string{
		"job": "gpu-spot-autoscaler", "namespace": rig.Namespace, "service": "gpu-spot-autoscaler", "pod": "gpu-spot-autoscaler-0", "endpoint": "metrics",
	}})

	// Pods that are bought for wait so shortly that a late scrape may miss them. This one fits nowhere.
	began, pending := time.Now(), r.Client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pending.Create(t.Context(), rig.GPUPod("too-large", 100), metav1.CreateOptions{})
	require.NoError(t, err)
	rig.Eventually(t, soon, "a pod is seen to wait", func(ctx context.Context) (bool, error) {
		answer, err := prometheus.queryRange(ctx, "gpu_spot_pending_pods", began, time.Now())
		return !isEmpty(answer), err
	})
	require.NoError(t, pending.Delete(t.Context(), "too-large", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))

	jobs := r.Client.BatchV1().Jobs(metav1.NamespaceDefault)
	_, err = jobs.Create(t.Context(), gang("train", 2), metav1.CreateOptions{})
	require.NoError(t, err)
	pods := awaitPods(t, r, "train", 2)
	node, err := r.Client.CoreV1().Nodes().Get(t.Context(), pods[0].Spec.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	_, instance, _ := strings.Cut(node.Spec.ProviderID, ".")
	agent := r.RunNodeAgent(t, node, instance)
	prometheus.scrape(t, "node-agent", target{strings.TrimPrefix(agent.URL, "http://"), map[string]string{"job": "gpu-spot-node-agent"}})

	beside := rig.GPUPod("beside", 0)
	beside.Spec.NodeName = node.Name
	_, err = r.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), beside, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, r.Cloud.Reclaim(instance))
	var request string
	rig.Eventually(t, soon, "the job is asked for a checkpoint", func(ctx context.Context) (bool, error) {
		pod, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pods[1].Name, metav1.GetOptions{})
		request = pod.Annotations[api.AnnotationCheckpointRequest]
		return request != "", err
	})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationCheckpointAcknowledged, request)
	_, err = r.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), pods[1].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	rig.Eventually(t, soon, "the reclaim has ended", func(ctx context.Context) (bool, error) {
		families, err := autoscaler.Metrics(ctx)
		return err == nil && len(families["gpu_spot_reclaims_total"].GetMetric()) > 0, err
	})
	awaitPods(t, r, "train", 2)
	require.NoError(t, jobs.Delete(t.Context(), "train", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	rig.Eventually(t, soon, "the nodes are given back", func(context.Context) (bool, error) { return len(r.Cloud.Instances()) == 0, nil })
	return autoscaler
}

// gang returns a Job of n pods that run together or not at all, and that acknowledge a checkpoint.
func gang(name string, n int32) *batchv1.Job {
	pod := rig.GPUPod(name, 1)
	pod.Annotations = map[string]string{
		api.AnnotationAwaitCheckpoint: "true", api.AnnotationGangName: name, api.AnnotationGangSize: strconv.Itoa(int(n)),
	}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		CompletionMode: ptr.To(batchv1.IndexedCompletion), Parallelism: &n, Completions: &n,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: pod.Spec},
	}}
}

// awaitPods waits until so many pods of the Job run, and returns them.
func awaitPods(t *testing.T, r *rig.Rig, job string, n int) (running []corev1.Pod) {
	t.Helper()
	rig.Eventually(t, soon, fmt.Sprintf("%d pods of %s run", n, job), func(ctx context.Context) (bool, error) {
		pods, err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
		if err != nil {
			return false, err
		}
		running = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
		})
		return len(running) == n, nil
	})
	return running
}

// assertPageOfMetrics compares docs/metrics.md with what the process serves, which only now has the labels of most metrics.
func assertPageOfMetrics(t *testing.T, autoscaler *rig.Autoscaler) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	written := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		written[row[1]] = row[2] + " " + strings.ReplaceAll(row[3], "`", "")
	}
	families, err := autoscaler.Metrics(t.Context())
	require.NoError(t, err)
	for name, family := range families {
		if !strings.HasPrefix(name, api.MetricPrefix) && !strings.HasPrefix(name, "cluster_autoscaler_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]bool{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = true
			}
			kind, list, _ := strings.Cut(written[name], " ")
			assert.Equal(t, kind, strings.ToLower(family.GetType().String()), name)
			documented := sets.New(strings.Split(list, ", ")...).Delete("")
			assert.ElementsMatch(t, sets.List(documented), slices.Collect(maps.Keys(labels)), name)
		}
	}
}
