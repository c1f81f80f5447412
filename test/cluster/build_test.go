package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionIsThatOfTheNestedModule(t *testing.T) {
	mod, err := os.ReadFile("controlplane/go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "k8s.io/kubernetes v"+kubeVersion)
}

func TestStartRefusesBadOptions(t *testing.T) {
	used := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(used, "file"), nil, 0o600))
	tests := map[string]struct {
		opts Options
		want string
	}{
		"a directory in use":           {Options{Dir: used, Binary: "/bin/false"}, "is not empty"},
		"a grace period too short":     {Options{NodeGracePeriod: 1}, "NodeGracePeriod"},
		"a binary that does not exist": {Options{Binary: filepath.Join(used, "none")}, "none"},
		"a binary of something else":   {Options{Binary: "/bin/false"}, "supervisor ended"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), test.opts)
			require.ErrorContains(t, err, test.want)
		})
	}
}
