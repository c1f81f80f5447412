package kubeconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheClusterIsThatOfTheContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(`{"clusters": [{"name": "a", "cluster": {"server": "https://a"}}, {"name": "b", "cluster": {"server": "https://b"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a"}}, {"name": "b", "context": {"cluster": "b"}}], "current-context": "a"}`), 0o600))
	for context, host := range map[string]string{"": "https://a", "b": "https://b"} {
		f := Flags{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.AddTo(fs)
		require.NoError(t, fs.Parse([]string{"--kubeconfig=" + file, "--context=" + context}))
		config, err := f.Config()
		require.NoError(t, err)
		assert.Equal(t, host, config.Host)
	}
	_, err := Flags{File: file, Context: "c"}.Config()
	assert.ErrorContains(t, err, "give --kubeconfig")
}
