package reclaim

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestRefusedRequestsDoNotWaitInsideOfTheCall(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	marks, drains, err := Clients(&rest.Config{Host: server.URL}, RateLimits{})
	require.NoError(t, err)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "default"}}
	assert.True(t, apierrors.IsTooManyRequests(drains.PolicyV1().Evictions("default").Evict(t.Context(), eviction)))
	_, err = marks.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	assert.True(t, apierrors.IsTooManyRequests(err))
	assert.EqualValues(t, 2, asked.Load(), "the caller tries again, with a place of its own among the requests")
}
