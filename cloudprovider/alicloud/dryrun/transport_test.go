package dryrun

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		if method == http.MethodGet {
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			continue
		}
		assert.ErrorContains(t, err, method+" /api/v1/nodes would write")
	}
	assert.Equal(t, []string{http.MethodGet}, got)
}
