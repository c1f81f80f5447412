package app

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

func newRESTNodeForTest(t *testing.T) (*restNode, *fakeAPI) {
	t.Helper()
	api := newFakeAPI(t, morning)
	config, err := clientcmd.BuildConfigFromFlags("", api.kubeconfig(t))
	require.NoError(t, err)
	n, err := newRESTNode(config, "self")
	require.NoError(t, err)
	return n, api
}

func TestNodeIsReadAndAnnotated(t *testing.T) {
	n, api := newRESTNodeForTest(t)
	value := "v"
	require.NoError(t, n.annotate(t.Context(), map[string]*string{"a": &value, "b": &value}, ""))
	require.NoError(t, n.annotate(t.Context(), map[string]*string{"b": nil}, ""))
	got, err := n.get(t.Context(), wholeNode)
	require.NoError(t, err)
	assert.True(t, got.CreationTimestamp.Time.Equal(morning))
	assert.Equal(t, map[string]string{"a": "v"}, got.Annotations)
	assert.Equal(t, []string{"10.1.2.0/24"}, got.Spec.PodCIDRs)
	metadata, err := n.get(t.Context(), metadataOnly)
	require.NoError(t, err)
	assert.Equal(t, got.ObjectMeta, metadata.ObjectMeta)
	assert.Empty(t, metadata.Spec.PodCIDRs)

	require.NoError(t, n.annotate(t.Context(), map[string]*string{"c": &value}, got.ResourceVersion))
	assert.True(t, apierrors.IsConflict(n.annotate(t.Context(), map[string]*string{"d": &value}, got.ResourceVersion)))
	assert.Empty(t, api.annotation("d"))
}

func TestNodeThatCannotBeReachedIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		fail http.HandlerFunc
		want string
	}{
		"a proxy in between": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
		}, "status 502: <html>bad gateway"},
		"a Node that is gone": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.Write([]byte(`{"kind": "Status", "code": 404, "reason": "NotFound", "message": "nodes \"self\" not found"}`))
		}, `nodes "self" not found`},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte(`{"metadata"`))
		}, "unexpected EOF"},
		"a broken connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			n, api := newRESTNodeForTest(t)
			api.fail = c.fail
			_, err := n.get(t.Context(), wholeNode)
			assert.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, n.annotate(t.Context(), nil, ""), c.want)
		})
	}
}

func TestFlagsThatCannotBeAreRefused(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--node-name is missing"},
		{[]string{"--node-name=n", "--metadata-endpoint=100.100.100.200"}, "--metadata-endpoint"},
		{[]string{"--node-name=n", "--poll-interval=0s"}, "--poll-interval"},
		{[]string{"--node-name=n", "--protected-period=-1s"}, "--protected-period"},
		{[]string{"--node-name=n", "--allow-from=10.0.0.0"}, "--allow-from"},
		{[]string{"--node-name=n", "--kubeconfig=/does/not/exist"}, "/does/not/exist"},
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"argument"}, "argument"},
	} {
		assert.ErrorContains(t, Run(t.Context(), c.args), c.want, "%v", c.args)
	}
	assert.NoError(t, Run(t.Context(), []string{"--help"}))
}

func TestAddressThatIsTakenIsRefused(t *testing.T) {
	api := newFakeAPI(t, time.Now())
	err := Run(t.Context(), []string{"--node-name=n", "--address=192.0.2.1", "--kubeconfig=" + api.kubeconfig(t)})
	assert.ErrorContains(t, err, "--address")
}
