package ask

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig/kubeconfigtest"
)

// through returns the flags that lead to the API server.
func through(t *testing.T, server string) Flags {
	t.Helper()
	return Flags{Cluster: kubeconfig.Flags{File: kubeconfigtest.File(t, server)}, Namespace: "kube-system", Name: "autoscaler"}
}

func TestInAPodWithoutATokenTheLeaderIsReachedByTheKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1") // as in each pod, and there is no token here
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	leader, err := through(t, "https://cluster.example").Leader()
	require.NoError(t, err)
	assert.IsType(t, &proxied{}, leader)
}

func TestWhatTheLeaderDoesNotKnowIsSaidAtOnceInItsWords(t *testing.T) {
	const said = "the Cluster Autoscaler that is served knows it"
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": {"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"}}`))
			return
		}
		asked++
		http.Error(w, said, http.StatusNotImplemented)
	}))
	t.Cleanup(server.Close)
	leader, err := through(t, server.URL).Leader()
	require.NoError(t, err)
	_, err = leader.Get(t.Context(), "/explain", nil)
	require.EqualError(t, err, said)
	assert.Equal(t, 1, asked)

	ours, _ := inPod(t, http.StatusNotImplemented, said)
	_, err = ours.Get(t.Context(), "/explain", nil)
	require.EqualError(t, err, said)
}
