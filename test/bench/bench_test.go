package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim/temper"
	"gpu-spot-autoscaler/test/bench/report"
)

func TestRowsHaveTheKeysThatOthersRead(t *testing.T) {
	for name, test := range map[string]struct {
		rows any
		keys []string
	}{
		"scaleup": {[]scaleupRow{{}}, []string{"offerings", "p50_s", "p99_s", "pods", "temper"}},
		"refresh": {[]refreshRow{{}}, []string{"alloc_bytes", "calls", "calls_bound", "instances", "pools", "seconds", "temper"}},
		"loop": {[]loopRow{{}}, []string{
			"idle_cloud_calls_per_minute", "idle_p50_s", "max_s", "nodes", "p50_s", "pods_per_node", "rss_bytes", "temper",
		}},
		"delete": {[]deleteRow{{}}, []string{"calls", "nodes", "one_at_a_time", "pools", "seconds", "temper"}},
		"gangs": {[]gangsRow{{}}, []string{
			"all_held_s", "all_requested_s", "gang_size", "gangs", "held_pct", "offerings", "parallel", "requested_pct", "temper",
		}},
		"gpunodes": {[]gpuNodesRow{{}}, []string{"nodes", "of_which_cloud_s", "pending_to_ready_s", "temper"}},
		"reclaim": {[]reclaimRow{{}}, []string{
			"controllers_s", "emptied_p50_s", "emptied_p99_s", "emptied_pct", "jobs_not_whole", "mark_p50_s", "mark_p99_s", "marked_pct", "notices", "operators", "purchases_per_node",
			"replace_p99_s", "requests_per_pod", "temper", "unguarded_emptied_p50_s", "unguarded_emptied_p99_s", "unguarded_nodes", "unwarned_pods", "whole_s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name+".json")
			require.NoError(t, report.Report{Rows: test.rows}.Write(path))
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			var file struct{ Rows []map[string]any }
			require.NoError(t, json.Unmarshal(text, &file))
			require.Len(t, file.Rows, 1)
			assert.Equal(t, test.keys, slices.Sorted(maps.Keys(file.Rows[0])))
		})
	}
}

func TestPodsAreCoveredByPurchasesInTheirOrder(t *testing.T) {
	const four, one = "ecs.gn6v-c8g1.8xlarge", "ecs.gn6v-c8g1.2xlarge"
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	created := []time.Time{at(0), at(0), at(1), at(1), at(2), at(2)}
	assert.Equal(t, []float64{3, 3, 2, 2, 3, 3}, covered(created, []bought{
		{Type: four, Instances: 1, at: at(3)}, {Type: one, Instances: 9, at: at(5)},
	}))
	assert.Equal(t, []float64{1}, covered(created, []bought{{Type: one, Instances: 1, at: at(1)}}), "the others are not covered")
}

func TestARowSaysTheTemperOfItsCloud(t *testing.T) {
	exceptional := temper.Strict()
	exceptional.OneAtATime = false
	for want, rules := range map[string]temper.Rules{
		"strict": temper.Strict(), "lenient": temper.Lenient(), "strict with exceptions": exceptional,
	} {
		assert.Equal(t, want, temperOf(rules))
	}
	assert.Equal(t, temper.Strict(), (&session{temper: "strict"}).tempered(newWorld(1, 1, 1, 1)).Temper)
	assert.Empty(t, (&session{}).tempered(newWorld(1, 1, 1, 1)).Temper, "the simulator's default")
}

func TestWhatIsTheCloudsIsCountedAtItsOwnSpeed(t *testing.T) {
	began := time.Now()
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	last := birth{accepted: at(2), ended: at(5), registered: at(11), ready: at(23)}
	row, detail := last.figures(began, 10)
	assert.Equal(t, gpuNodesRow{Nodes: 2, PendingToReady: 212, OfWhichCloud: 210}, row)
	assert.Equal(t, gpuNodesDetail{Nodes: 2, Speed: 10, Bought: 2, Launched: 30, Booted: 60, Equipped: 120}, detail)
}

func TestWhatGPUNodesTakeIsRealInEveryTemper(t *testing.T) {
	for _, name := range []string{"strict", "lenient"} {
		world := gpuNodesWorld(&session{temper: name}, 10)
		assert.Equal(t, 6*time.Second, world.BootDelay.Duration, name)
		assert.Equal(t, 12*time.Second, world.DriverDelay.Duration, name)
	}
	assert.Equal(t, 4*time.Second, gpuNodesWorld(&session{temper: "lenient"}, 10).ActivityDelay.Duration)
	assert.Zero(t, gpuNodesWorld(&session{temper: "strict"}, 10).ActivityDelay, "20 to 60 s, by the table")
}
