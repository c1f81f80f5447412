package alisim_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/temper"
)

func TestTheWorldsThatComeAlongCanBeBoughtIn(t *testing.T) {
	files, err := filepath.Glob("worlds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			w, err := alisim.LoadWorld(file)
			require.NoError(t, err)
			s := startWorld(t, w, alisim.Options{})
			for _, p := range w.Pools {
				for _, typ := range p.InstanceTypes {
					for _, vsw := range p.VSwitches {
						resp, err := s.scale(p.ID, 1, target(typ, vsw, p.SpotStrategy))
						require.NoError(t, err)
						s.pass(w.ActivityDelay.Duration)
						a := s.activity(resp.ScalingActivityId)
						assert.Equal(t, "Successful", a.StatusCode, "%s %s %s: %s", p.ID, typ, vsw, a.ErrorMessage)
					}
				}
			}
		})
	}
}

func TestWorldFilesAreRead(t *testing.T) {
	w, err := alisim.ParseWorld([]byte(`
region: cn-beijing
speed: 30
noticePeriod: 90s
vswitches: [{id: v, zone: cn-beijing-l}]
rateLimits: {"*": 0, DescribePrice: 7}
market:
  offset: 26h
  trace: {zones: {cn-beijing-l: us-east-1a}, poolSize: 4}
  script:
  - {at: 1h, zone: cn-beijing-l, stock: 0}
pools:
- id: asg-1
  maxSize: 5
  instanceTypes: [ecs.gn6v-c8g1.2xlarge]
  vswitches: [v]
  spotStrategy: SpotAsPriceGo
  node: {labels: {a: b}, taints: ["k=v:NoSchedule"], resources: {aliyun.com/gpu-mem: "16"}}
`))
	require.NoError(t, err)
	assert.Equal(t, 90*time.Second, w.NoticePeriod.Duration)
	assert.Equal(t, 26*time.Hour, w.Market.Offset.Duration)
	assert.Equal(t, time.Hour, w.Market.Script[0].At.Duration)
	s := startWorld(t, w, alisim.Options{})
	assert.Equal(t, 2*time.Minute, s.MarketHour())
}

func TestTheTemperChoosesTheTableOfDurations(t *testing.T) {
	read := func(text string) *sim {
		w, err := alisim.ParseWorld([]byte("region: r\n" + text))
		require.NoError(t, err)
		return startWorld(t, w, alisim.Options{})
	}
	assert.Equal(t, cloud.Real, read("temper: strict").Takes())
	assert.Equal(t, cloud.Quick, read("temper: lenient\nspeed: 30").Takes(), "it is quick already")
	fast := read("temper: strict\nspeed: 30\nnoticePeriod: 40s\nactivityDelay: 1s\nbootDelay: -1s").Takes()
	assert.Equal(t, 4*time.Second, fast.Driver)
	assert.Equal(t, 10*time.Second, fast.NodeController)
	assert.Equal(t, 20*time.Second, fast.TokenLife)
	assert.Equal(t, 40*time.Second, fast.Notice, "what is given is not divided")
	assert.Zero(t, fast.ListLag, "no longer than an instance boots")
	assert.Equal(t, []time.Duration{time.Second, time.Second, 0}, []time.Duration{fast.Activity.Most, fast.Removal, fast.Boot})
}

func TestARuleOfAWorldMayDifferFromItsTemper(t *testing.T) {
	w, err := alisim.ParseWorld([]byte("{region: r, temper: {base: strict, oneAtATime: false}}"))
	require.NoError(t, err)
	want := temper.Strict()
	want.OneAtATime = false
	s := startWorld(t, w, alisim.Options{})
	assert.Equal(t, want, s.Temper())
	assert.Equal(t, "strict", s.State().Temper)
	assert.Equal(t, temper.Default, startWorld(t, alisim.World{Region: "r"}, alisim.Options{}).Temper().Base)
}

func TestWorldsAreChecked(t *testing.T) {
	for name, test := range map[string]struct{ text, culprit string }{
		"mistyped field":        {"region: r\nzone: x", "zone"},
		"no region":             {"seed: 1", "region"},
		"pool without id":       {"region: r\npools: [{maxSize: 1}]", "pools[0]"},
		"pool twice":            {"region: r\npools: [{id: a, maxSize: 1}, {id: a, maxSize: 1}]", `"a"`},
		"unknown type":          {"region: r\npools: [{id: a, maxSize: 1, instanceTypes: [ecs.none]}]", "ecs.none"},
		"unknown vSwitch":       {"region: r\npools: [{id: a, maxSize: 1, vswitches: [v]}]", `"v"`},
		"unknown policy":        {"region: r\npools: [{id: a, maxSize: 1, multiAZPolicy: DICE}]", "DICE"},
		"unknown strategy":      {"region: r\npools: [{id: a, maxSize: 1, spotStrategy: Cheap}]", "Cheap"},
		"unknown process":       {"region: r\npools: [{id: a, maxSize: 1, suspendedProcesses: [Sleep]}]", "Sleep"},
		"unknown health check":  {"region: r\npools: [{id: a, maxSize: 1, healthCheckType: Fever}]", "Fever"},
		"unknown state":         {"region: r\npools: [{id: a, maxSize: 1, lifecycleState: Tired}]", "Tired"},
		"minimum above maximum": {"region: r\npools: [{id: a, minSize: 2, maxSize: 1}]", "minSize"},
		"desired out of bounds": {"region: r\npools: [{id: a, maxSize: 1, desiredCapacity: 2}]", "desiredCapacity"},
		"more than fit":         {"region: r\npools: [{id: a, maxSize: 1, instances: 2}]", "instances"},
		"odd spot duration":     {"region: r\npools: [{id: a, maxSize: 1, spotDuration: 2}]", "spotDuration"},
		"taint in no form":      {"region: r\npools: [{id: a, maxSize: 1, node: {taints: [x]}}]", `"x"`},
		"vSwitch without zone":  {"region: r\nvswitches: [{id: v}]", "vswitches[0]"},
		"vSwitch twice":         {"region: r\nvswitches: [{id: v, zone: z}, {id: v, zone: z}]", `"v"`},
		"type without shape":    {"region: r\ntypes: [{id: t}]", `"t"`},
		"negative speed":        {"region: r\nspeed: -1", "speed"},
		"trace without zones":   {"region: r\nmarket: {trace: {zones: {}}}", "trace"},
		"half a trace":          {"region: r\nmarket: {trace: {zones: {a: b}, price: p.csv}}", "trace"},
		"unknown temper":        {"region: r\ntemper: angry", "angry"},
		"unknown rule":          {"region: r\ntemper: {base: strict, kind: true}", "kind"},
		"negative stock":        {"region: r\nmarket: {script: [{at: 1s, stock: -2}]}", "script[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := alisim.ParseWorld([]byte(test.text))
			assert.ErrorContains(t, err, test.culprit)
		})
	}
	_, err := alisim.LoadWorld(filepath.Join(t.TempDir(), "nowhere.yaml"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
