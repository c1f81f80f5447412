package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryVersionHasItsModuleFile(t *testing.T) {
	for _, version := range Versions {
		mod, err := os.ReadFile(filepath.Join("controlplane", moduleFile(version)))
		require.NoError(t, err)
		require.Contains(t, string(mod), "k8s.io/kubernetes v"+version)
	}
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
		"a version that is unknown":    {Options{Version: "1.0.0"}, `no control plane of Kubernetes "1.0.0", only of 1.33.13, 1.35.4, 1.36.1`},
		"a binary that does not exist": {Options{Binary: filepath.Join(used, "none")}, "none"},
		"a binary of something else":   {Options{Binary: "/bin/false"}, "ended by itself"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), test.opts)
			require.ErrorContains(t, err, test.want)
		})
	}
}
