package ask

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

func heldBy(pod string, renewed time.Time) coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{HolderIdentity: &pod, RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: ptr.To[int32](15)}
}

// inPod returns the autoscaler of this pod, which answers every request with the code and the text, and the requests that it got.
func inPod(t *testing.T, code int, text string) (*beside, *[]*http.Request) {
	var got []*http.Request
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r)
		http.Error(w, text, code)
	}))
	t.Cleanup(server.Close)
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte("secret\n"), 0o600))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "autoscaler"},
		Spec:       heldBy("autoscaler-b", time.Now()),
	}
	f := Flags{Namespace: "kube-system", Name: "autoscaler", Address: strings.TrimPrefix(server.URL, "https://")}
	return &beside{fake.NewClientset(lease), f, tokenFile}, &got
}

func TestInItsPodTheCommandAsksTheAutoscalerBesideItWithTheTokenOfThePod(t *testing.T) {
	leader, got := inPod(t, http.StatusOK, "{}")
	body, err := leader.Get(t.Context(), "/explain", map[string]string{"namespace": "a", "name": "b"})
	require.NoError(t, err)
	assert.JSONEq(t, "{}", string(body))
	require.Len(t, *got, 1)
	assert.Equal(t, "Bearer secret", (*got)[0].Header.Get("Authorization"))
	assert.Equal(t, "/explain?name=b&namespace=a", (*got)[0].URL.String())
}

func TestInAPodThatDoesNotLeadTheCommandNamesTheOneThatDoes(t *testing.T) {
	standby, _ := inPod(t, http.StatusMisdirectedRequest, "not me")
	_, err := standby.Get(t.Context(), "/explain", nil)
	assert.ErrorContains(t, err, "kubectl -n kube-system exec autoscaler-b")
	assert.NotContains(t, err.Error(), "secret")
}

func TestTheLeaseOfADryRunIsFoundByTheNameOfItsRelease(t *testing.T) {
	t.Setenv("POD_NAME", "gpu-spot-dry-run-a")
	standby, _ := inPod(t, http.StatusMisdirectedRequest, "not me")
	standby.flags.Name = "gpu-spot-dry-run"
	for name, spec := range map[string]coordinationv1.LeaseSpec{
		"gpu-spot-dry-run":         heldBy("of-before-it-was-a-dry-run", time.Now().Add(-time.Hour)),
		"gpu-spot-dry-run-dry-run": heldBy("gpu-spot-dry-run-a", time.Now()),
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		_, err := standby.client.CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := standby.Get(t.Context(), "/explain", nil)
	assert.ErrorContains(t, err, "run the command again")
}

func TestWithoutSecureServingTheCommandSaysWhatToSet(t *testing.T) {
	leader, _ := inPod(t, http.StatusOK, "")
	leader.flags.Address = "127.0.0.1:1" // nobody listens there
	_, err := leader.Get(t.Context(), "/explain", nil)
	assert.ErrorContains(t, err, "secureServing.enabled")
}

func TestInAPodThatHasOnlyBegunToLeadTheCommandNamesNoOther(t *testing.T) {
	t.Setenv("POD_NAME", "autoscaler-b")
	leader, _ := inPod(t, http.StatusMisdirectedRequest, "not me")
	_, err := leader.Get(t.Context(), "/explain", nil)
	assert.ErrorContains(t, err, "run the command again")
}
