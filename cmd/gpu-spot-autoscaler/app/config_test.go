package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	caconfig "k8s.io/autoscaler/cluster-autoscaler/config"
)

func TestTheKubernetesClientIsAsTheFlagsSay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`), 0o600))
	client, err := kubeConfig(caconfig.KubeClientOptions{
		KubeConfigPath: path, KubeClientQPS: 7, KubeClientBurst: 9, APIContentType: "application/json",
	}, "training-team")
	require.NoError(t, err)
	assert.Contains(t, client.UserAgent, "training-team")
	assert.Equal(t, float32(7), client.QPS)
	assert.Equal(t, 9, client.Burst)
	assert.Equal(t, "application/json", client.ContentType)
}
