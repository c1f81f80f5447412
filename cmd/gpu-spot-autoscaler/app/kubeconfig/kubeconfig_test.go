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
	assert.EqualError(t, err, `no access to a cluster: context "c" does not exist; kubectl config get-contexts lists what there is`)
}

func TestWhoHasNoClusterIsToldHowToNameOne(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	_, err := Flags{}.Config()
	assert.ErrorContains(t, err, "there is no kubeconfig")
	assert.NotContains(t, err.Error(), "KUBERNETES_MASTER")
	_, err = Flags{File: filepath.Join(t.TempDir(), "gone")}.Config()
	assert.ErrorContains(t, err, "gone: no such file or directory; give --kubeconfig")
}
