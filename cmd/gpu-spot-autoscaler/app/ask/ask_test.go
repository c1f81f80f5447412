package ask

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
)

// through returns the flags that lead to the API server.
func through(t *testing.T, server string) Flags {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return Flags{Cluster: kubeconfig.Flags{File: path}, Namespace: "kube-system", Name: "autoscaler"}
}

func TestInAPodWithoutATokenTheLeaderIsReachedByTheKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1") // as in each pod, and there is no token here
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	leader, err := through(t, "https://cluster.example").Leader()
	require.NoError(t, err)
	assert.IsType(t, &proxied{}, leader)
}
