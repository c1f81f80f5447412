package dryrun

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestWhatMayChangeSomethingIsADryRunAndReadsAreAsTheyWere(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.RequestURI())
	}))
	defer server.Close()
	client := &http.Client{Transport: Transport(http.DefaultTransport)}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1/nodes?fieldManager=x", strings.NewReader(""))
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, "fieldManager=x", request.URL.RawQuery, "a RoundTripper must not modify the request")
	}
	assert.Equal(t, []string{
		"GET /api/v1/nodes?fieldManager=x", "POST /api/v1/nodes?dryRun=All&fieldManager=x", "PUT /api/v1/nodes?dryRun=All&fieldManager=x",
		"PATCH /api/v1/nodes?dryRun=All&fieldManager=x", "DELETE /api/v1/nodes?dryRun=All&fieldManager=x",
	}, got)
}

func TestARequestForAnotherKindOfDryRunIsNotSent(t *testing.T) {
	client := &http.Client{Transport: Transport(http.DefaultTransport)}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://127.0.0.1:1/api/v1/nodes/a?dryRun=None", nil)
	require.NoError(t, err)
	_, err = client.Do(request)
	assert.ErrorContains(t, err, "dryRun=[None]")
}

func TestOfAReadOnlyClientNothingButReadsIsSent(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Method) }))
	defer server.Close()
	client := &http.Client{Transport: ReadOnly(http.DefaultTransport)}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1/nodes?dryRun=All", strings.NewReader(""))
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, errors.Join(err, response.Body.Close()))
		if method == http.MethodGet {
			continue
		}
		assert.Equal(t, http.StatusForbidden, response.StatusCode)
		assert.Contains(t, string(body), method+" /api/v1/nodes would write")
	}
	assert.Equal(t, []string{http.MethodGet}, got)
}

func TestAWriteOfAReadOnlyClientIsForbidden(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1", WrapTransport: ReadOnly})
	require.NoError(t, err)
	_, err = client.CoreV1().Events("ml").Create(t.Context(), &corev1.Event{}, metav1.CreateOptions{})
	assert.True(t, apierrors.IsForbidden(err), "a recorder tries again only what no API server has answered: %v", err)
	assert.ErrorContains(t, err, "would write, and nothing is to be written")
}
