package version

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheVersionNamesCommitCoreAndLibraries(t *testing.T) {
	build := &debug.BuildInfo{
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-26T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}},
		Deps:     []*debug.Module{{Path: "k8s.io/kubernetes", Version: "v1.33.13"}, {Path: "k8s.io/client-go", Version: "v0.33.13"}},
	}
	info := of(build)
	assert.Equal(t, "abc-dirty", info.Commit)
	assert.Equal(t, "1.33.0", info.ClusterAutoscaler)
	assert.Contains(t, info.String(), "kubernetes scheduler  v1.33.13\nclient-go             v0.33.13\n")
	assert.Equal(t, unknown, of(&debug.BuildInfo{}).Commit)

	commit, release = "set-by-the-linker", "9.9.9"
	defer func() { commit, release = "", "" }()
	assert.Equal(t, "set-by-the-linker", of(build).Commit)
	assert.Equal(t, "9.9.9", of(build).Version)
}

func TestTheVersionIsThatOfTheChart(t *testing.T) {
	text, err := os.ReadFile("../../../../deploy/chart/gpu-spot-autoscaler/Chart.yaml")
	require.NoError(t, err)
	chart := regexp.MustCompile(`(?m)^appVersion: (\d+\.\d+\.\d+)$`).FindSubmatch(text)
	require.NotNil(t, chart)
	assert.Regexp(t, `^version +`+regexp.QuoteMeta(string(chart[1]))+`\n`, Get().String(), "the first line")
}

func TestAMetricSaysWhatRuns(t *testing.T) {
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	info := Get()
	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
		# HELP gpu_spot_build_info 1, with what the binary was built from, as the command version prints it.
		# TYPE gpu_spot_build_info gauge
		gpu_spot_build_info{cluster_autoscaler=%q,commit=%q,version=%q} 1
	`, info.ClusterAutoscaler, info.Commit, info.Version))))
}

func TestTheVersionAsJSON(t *testing.T) {
	var out bytes.Buffer
	command := NewCommand()
	command.SetOut(&out)
	command.SetArgs([]string{"-o", "json"})
	require.NoError(t, command.Execute())
	var info Info
	require.NoError(t, json.Unmarshal(out.Bytes(), &info))
	assert.Equal(t, Get(), info)
	command.SetArgs([]string{"-o", "xml"})
	command.SilenceErrors, command.SilenceUsage = true, true
	assert.ErrorContains(t, command.Execute(), "--output=xml")
}
