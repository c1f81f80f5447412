package plan

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

func TestACommandLineThatCannotBeIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}`), 0o600))
	for arguments, want := range map[string]string{
		"":                                    "-f is required",
		"-f " + file + " -o yaml":             "-o yaml: want text or json",
		"-f " + file + " --region=cn-beijing": "unknown flag: --region: it is a flag of the autoscaler, and those come after --",
		"-f " + file + " --regoin=cn-beijing": "unknown flag: --regoin",
		"job.yaml":                            `"job.yaml": give files with -f, and flags of the autoscaler after --`,
		"job.yaml -- --region=cn-beijing":     `"job.yaml": give files with -f`,
		"-f none.yaml":                        "none.yaml",
		"-f " + file + " --kubeconfig=none":   "give --kubeconfig",
	} {
		root := &cobra.Command{}
		root.Flags().String("region", "", "")
		command := NewCommand(root, &options.Options{}, func(context.Context, Request) (*Plan, error) {
			t.Error("it was planned")
			return nil, nil
		})
		command.SetArgs(strings.Fields(arguments))
		command.SetOut(new(strings.Builder))
		assert.ErrorContains(t, command.Execute(), want, arguments)
	}
}
