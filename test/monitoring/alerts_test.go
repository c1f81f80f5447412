package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// rules returns the groups of deploy/alerts.yaml as Prometheus reads them, and the names of their alerts.
func rules(t *testing.T) (file []byte, alerts []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/alerts.yaml")
	require.NoError(t, err)
	return rulesIn(t, text)
}

// rulesIn returns the same of another PrometheusRule.
func rulesIn(t *testing.T, text []byte) (file []byte, alerts []string) {
	t.Helper()
	var shipped struct {
		Spec struct {
			Groups []struct {
				Name  string           `json:"name"`
				Rules []map[string]any `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	require.NoError(t, utilyaml.Unmarshal(text, &shipped))
	for _, group := range shipped.Spec.Groups {
		for _, each := range group.Rules {
			alerts = append(alerts, each["alert"].(string))
		}
	}
	file, err := yaml.Marshal(shipped.Spec)
	require.NoError(t, err)
	return file, alerts
}

// fault is a course of metrics, one value every 30 s, and the alert that it has to raise after the time. A course is written as promtool reads
// it: 0x10 1x20 is 0 for ten more times, and then 1 for twenty more times.
type fault struct {
	series map[string]string
	at     string
	labels string
}

// counted is a counter that begins to count.
func counted(series string) map[string]string { return map[string]string{series: "0x10 1+1x60"} }

// begun is a counter whose first value is not 0, as that of a process that has just started.
func begun(series string) map[string]string { return map[string]string{series: "_x10 1x60"} }

var faults = map[string][]fault{
	"GPUSpotReclaimLostPods": {
		{counted(`gpu_spot_reclaims_total{source="ecs",outcome="late"}`), "10m", `outcome="late",severity="critical",source="ecs"`},
		{begun(`gpu_spot_reclaims_total{source="ecs",outcome="late"}`), "10m", `outcome="late",severity="critical",source="ecs"`},
	},
	"GPUSpotReclaimMarkedLate": {{map[string]string{
		`gpu_spot_reclaim_notice_to_mark_seconds_bucket{source="ecs",le="1"}`:    "0x60",
		`gpu_spot_reclaim_notice_to_mark_seconds_bucket{source="ecs",le="30"}`:   "0+1x60",
		`gpu_spot_reclaim_notice_to_mark_seconds_bucket{source="ecs",le="+Inf"}`: "0+1x60",
	}, "10m", `severity="warning"`}},
	"GPUSpotLeaderNotReady": {{map[string]string{
		`gpu_spot_leader_condition{condition="polled"}`: "1x60", `gpu_spot_leader_condition{condition="refreshed"}`: "0x60",
	}, "3m", `severity="critical"`}},
	"GPUSpotReclaimPollFailing": {{map[string]string{`gpu_spot_reclaim_last_poll_timestamp_seconds`: "0x60"}, "3m", `severity="critical"`}},
	"GPUSpotReclaimPollBlind": {
		{counted(`gpu_spot_reclaim_notices_unseen_by_poll_total{source="push"}`), "10m", `severity="warning",source="push"`},
		{begun(`gpu_spot_reclaim_notices_unseen_by_poll_total{source="push"}`), "10m", `severity="warning",source="push"`},
	},
	"GPUSpotAutoscalerAbsent":     {{map[string]string{`up`: "1x60"}, "3m", `severity="critical"`}},
	"GPUSpotPushedNoticesRefused": {{counted(`gpu_spot_reclaim_pushed_events_total{outcome="unauthorized"}`), "10m", `outcome="unauthorized",severity="warning"`}},
	"GPUSpotPushedNoticesUnsigned": {
		{counted(`gpu_spot_reclaim_push_signatures_total{outcome="wrong"}`), "10m", `outcome="wrong",severity="warning"`},
		{begun(`gpu_spot_reclaim_push_signatures_total{outcome="wrong"}`), "10m", `outcome="wrong",severity="warning"`},
	},
	"GPUSpotPushedNoticesHeld": {{map[string]string{`gpu_spot_reclaim_notices_held`: "2x60"}, "2m", `severity="critical"`}},
	"GPUSpotNodeFaultsHeld":    {{map[string]string{`gpu_spot_node_faults_held`: "7x60"}, "3m", `severity="critical"`}},
	"GPUSpotPushedNoticeFalse": {
		{counted(`gpu_spot_reclaims_total{source="push",outcome="cancelled"}`), "10m", `outcome="cancelled",severity="warning",source="push"`},
	},
	"GPUSpotCheckpointMissed": {
		{counted(`gpu_spot_reclaim_checkpoints_total{system="jobset",outcome="missed"}`), "10m", `outcome="missed",severity="warning",system="jobset"`},
		{begun(`gpu_spot_reclaim_checkpoints_total{system="jobset",outcome="missed"}`), "10m", `outcome="missed",severity="warning",system="jobset"`},
	},
	"GPUSpotJobSystemFailing": {{counted(`gpu_spot_reclaim_job_failures_total{system="mpijob",action="suspend"}`), "10m", `action="suspend",severity="warning",system="mpijob"`}},
	"GPUSpotJobStaysHeld":     {{counted(`gpu_spot_job_actions_total{system="mpijob",action="resume",outcome="failed"}`), "10m", `action="resume",severity="warning",system="mpijob"`}},
	"GPUSpotAgentBlind":       {{map[string]string{`gpu_spot_agent_metadata_failures_total{instance="10.0.0.1:8790"}`: "0+6x60"}, "12m", `instance="10.0.0.1:8790",severity="warning"`}},
	"GPUSpotAgentMute":        {{map[string]string{`gpu_spot_agent_node_failures_total{instance="10.0.0.1:8790"}`: "0+6x60"}, "20m", `instance="10.0.0.1:8790",severity="warning"`}},
	"GPUSpotPodsDeletedPastBudget": {
		{counted(`gpu_spot_reclaim_drained_pods_total{system="pods",method="delete"}`), "10m", `method="delete",severity="warning",system="pods"`},
		{begun(`gpu_spot_reclaim_drained_pods_total{system="pods",method="delete"}`), "10m", `method="delete",severity="warning",system="pods"`},
	},
	"GPUSpotRefreshFailing": {{map[string]string{`gpu_spot_last_refresh_timestamp_seconds`: "0x60"}, "8m", `severity="critical"`}},
	"GPUSpotPricesStale":    {{map[string]string{`gpu_spot_offerings_without_fresh_price`: "3x60"}, "12m", `severity="warning"`}},
	"GPUSpotPoolProblem":    {{map[string]string{`gpu_spot_pool_problem{pool="asg-1",reason="bad_tag"}`: "1x60"}, "6m", `pool="asg-1",reason="bad_tag",severity="warning"`}},
	"GPUSpotCloudErrors": {{map[string]string{
		`gpu_spot_cloud_request_duration_seconds_count{service="ecs",action="RunInstances",code="OK"}`:                                                  "0+1x60",
		`gpu_spot_cloud_request_duration_seconds_count{service="ecs",action="RunInstances",code="InvalidInstanceType.ZoneNotSupport",class="Stockout"}`: "0+1x60",
	}, "25m", `action="RunInstances",code="InvalidInstanceType.ZoneNotSupport",service="ecs",severity="warning"`}, {map[string]string{
		`gpu_spot_cloud_request_duration_seconds_count{service="ess",action="ScaleWithAdjustment",code="OK"}`:                           "0+1x60",
		`gpu_spot_cloud_request_duration_seconds_count{service="ess",action="ScaleWithAdjustment",code="Throttling",class="Throttled"}`: "0+1x60",
	}, "25m", `action="ScaleWithAdjustment",code="Throttling",service="ess",severity="warning"`}},
	"GPUSpotBoughtOnDemand": {
		{counted(`gpu_spot_compensated_instances_total{pool="asg-1"}`), "10m", `pool="asg-1",severity="warning"`},
		{begun(`gpu_spot_compensated_instances_total{pool="asg-1"}`), "10m", `pool="asg-1",severity="warning"`},
	},
	"GPUSpotPodsPending": {{map[string]string{
		`gpu_spot_pending_pods{reason="no-stock"}`: "3x90 stale", `gpu_spot_pending_pods{reason="price-cap"}`: "_x80 1x100",
	}, "65m", `severity="warning"`}},
	"GPUSpotInstancesDoNotJoin": {
		{counted(`cluster_autoscaler_old_unregistered_nodes_removed_count`), "10m", `severity="warning"`},
		{map[string]string{`cluster_autoscaler_nodes_count{state="longUnregistered"}`: "1x60"}, "10m", `severity="warning"`},
	},
	"GPUSpotSpendCapReached":   {{map[string]string{`gpu_spot_pool_spend_cap_reached{pool="asg-1"}`: "1x60"}, "16m", `pool="asg-1",severity="warning"`}},
	"GPUSpotCostLedgerFailing": {{counted(`gpu_spot_cost_ledger_errors_total`), "20m", `severity="warning"`}},
}

// sound are the metrics of an autoscaler that is in order.
var sound = map[string]string{
	`gpu_spot_reclaim_last_poll_timestamp_seconds`:                                                        "0+30x120",
	`gpu_spot_last_refresh_timestamp_seconds`:                                                             "0+30x120",
	`gpu_spot_leader_condition{condition="polled"}`:                                                       "1x120",
	`gpu_spot_leader_condition{condition="refreshed"}`:                                                    "1x120",
	`gpu_spot_offerings_without_fresh_price`:                                                              "0x120",
	`gpu_spot_reclaim_notices_held`:                                                                       "0x120",
	`gpu_spot_cost_ledger_errors_total`:                                                                   "0x20 1x100",
	`gpu_spot_pending_pods{reason="no-stock"}`:                                                            "3x60 stale 3x60",
	`gpu_spot_pending_pods{reason="bought"}`:                                                              "3x120",
	`cluster_autoscaler_nodes_count{state="longUnregistered"}`:                                            "0x120",
	`cluster_autoscaler_old_unregistered_nodes_removed_count`:                                             "0x120",
	`gpu_spot_node_faults_held`:                                                                           "0x120",
	`gpu_spot_reclaims_total{source="ecs",outcome="drained"}`:                                             "0+1x120",
	`gpu_spot_reclaims_total{source="ecs",outcome="late"}`:                                                "0x120",
	`gpu_spot_reclaim_notice_to_mark_seconds_bucket{source="ecs",le="1"}`:                                 "0+1x120",
	`gpu_spot_reclaim_notice_to_mark_seconds_bucket{source="ecs",le="+Inf"}`:                              "0+1x120",
	`gpu_spot_reclaim_checkpoints_total{system="jobset",outcome="acknowledged"}`:                          "0+1x120",
	`gpu_spot_reclaim_drained_pods_total{system="jobset",method="evict"}`:                                 "0+1x120",
	`gpu_spot_job_actions_total{system="mpijob",action="resume",outcome="done"}`:                          "0+1x120",
	`gpu_spot_cloud_request_duration_seconds_count{service="ess",action="ScaleWithAdjustment",code="OK"}`: "0+1x120",

	`gpu_spot_cloud_request_duration_seconds_count{service="ecs",action="RunInstances",code="OperationDenied.NoStock",class="Stockout"}`: "0+1x120",
	`gpu_spot_cloud_request_duration_seconds_count{service="ecs",action="RunInstances",code="Other",class="PriceTooLow"}`:                "0+1x120",
}

func TestEveryAlertIsRaisedByItsFaultAndNoneWithoutOne(t *testing.T) {
	groups, alerts := rules(t)
	var tests strings.Builder
	for _, alert := range alerts {
		if !assert.NotEmpty(t, faults[alert], "no fault raises %s", alert) {
			continue
		}
		for i, f := range faults[alert] {
			writeTest(&tests, fmt.Sprint(alert, " ", i+1), f.series)
			fmt.Fprintf(&tests, "      - eval_time: %s\n        expr: ALERTS{alertname=%q, alertstate=\"firing\"}\n        exp_samples:\n          - labels: 'ALERTS{alertname=%q,alertstate=\"firing\",%s}'\n            value: 1\n",
				f.at, alert, alert, f.labels)
		}
	}
	for alert := range faults {
		assert.Contains(t, alerts, alert)
	}
	writeTest(&tests, "a sound world", sound)
	for _, at := range []string{"10m", "30m", "60m"} {
		fmt.Fprintf(&tests, "      - eval_time: %s\n        expr: ALERTS{alertstate=\"firing\"}\n        exp_samples: []\n", at)
	}

	check(t, tests.String(), groups)
}

// check has promtool run the tests over the files of rules.
func check(t *testing.T, tests string, files ...[]byte) {
	t.Helper()
	directory := t.TempDir()
	for i, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(directory, fmt.Sprintf("rules-%d.yaml", i)), file, 0o600))
	}
	path := filepath.Join(directory, "tests.yaml")
	require.NoError(t, os.WriteFile(path, []byte("rule_files: [\"rules-*.yaml\"]\nevaluation_interval: 30s\ntests:\n"+tests), 0o600))
	out, err := exec.CommandContext(t.Context(), binary(t, "promtool"), "test", "rules", path).CombinedOutput()
	assert.NoError(t, err, string(out))
}

// Each reads the metrics of its own release, so that those of the other hide nothing.
func TestAReleaseThatIsGoneIsNoticedBesideAnother(t *testing.T) {
	series, files := map[string]string{}, [][]byte(nil)
	for name, values := range sound {
		labels := `{job="first",`
		if !strings.Contains(name, "{") {
			name, labels = name+"{}", `{job="first"`
		}
		series[strings.Replace(name, "{", labels, 1)] = values
	}
	for _, release := range []string{"first", "second"} {
		out, err := exec.CommandContext(t.Context(), binary(t, "helm"), "template", release, "../../deploy/chart/gpu-spot-autoscaler", "--kube-version=1.36.1",
			"--set=region=cn-hangzhou,clusterName=c,alerts.enabled=true", `--set-string=alerts.matchers=job="`+release+`"`, "--show-only=templates/alerts.yaml").Output()
		require.NoError(t, err)
		file, _ := rulesIn(t, out)
		files = append(files, file)
	}
	var tests strings.Builder
	writeTest(&tests, "one of two is gone", series)
	tests.WriteString("      - eval_time: 10m\n        expr: ALERTS{alertstate=\"firing\"}\n        exp_samples:\n" +
		"          - labels: 'ALERTS{alertname=\"GPUSpotAutoscalerAbsent\",alertstate=\"firing\",job=\"second\",release=\"second\",severity=\"critical\"}'\n            value: 1\n")
	check(t, tests.String(), files...)
}

func writeTest(to *strings.Builder, name string, series map[string]string) {
	fmt.Fprintf(to, "  - name: %s\n    interval: 30s\n    input_series:\n", name)
	names := make([]string, 0, len(series))
	for each := range series {
		names = append(names, each)
	}
	slices.Sort(names)
	for _, each := range names {
		fmt.Fprintf(to, "      - series: '%s'\n        values: '%s'\n", each, series[each])
	}
	to.WriteString("    promql_expr_test:\n")
}

// binary returns a program that is built ahead: helm by make lint, and those of Prometheus by make prometheus.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../out/bin/" + name)
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skip("there is no " + name + ": make lint prometheus builds it")
	}
	return path
}
