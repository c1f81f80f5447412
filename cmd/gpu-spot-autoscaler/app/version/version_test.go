package version

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"testing"

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

	commit = "set-by-the-linker"
	defer func() { commit = "" }()
	assert.Equal(t, "set-by-the-linker", of(build).Commit)
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
