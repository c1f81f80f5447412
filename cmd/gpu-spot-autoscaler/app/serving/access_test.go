package serving

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// reviewer answers reviews as an API server does: the token of a user is its name, and "viewer" may get /metrics. It does
// not answer reviews of the broken resource.
func reviewer(t *testing.T, broken string) *rest.Config {
	t.Helper()
	answer := func(w http.ResponseWriter, r *http.Request, review any, decide func()) {
		assert.NoError(t, json.NewDecoder(r.Body).Decode(review))
		decide()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		assert.NoError(t, json.NewEncoder(w).Encode(review))
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		if broken == "tokenreviews" {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		review := &authenticationv1.TokenReview{}
		answer(w, r, review, func() {
			review.Status.Authenticated = slices.Contains([]string{"viewer", "other"}, review.Spec.Token)
			review.Status.User.Username = review.Spec.Token
			if !review.Status.Authenticated {
				review.Status.Error = "[invalid bearer token, token lookup failed]" // as API servers do
			}
		})
	})
	routes.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		if broken == "subjectaccessreviews" {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		review := &authorizationv1.SubjectAccessReview{}
		answer(w, r, review, func() {
			asked := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "viewer" && asked != nil && asked.Verb == "get" && asked.Path == "/metrics"
		})
	})
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func TestOnlyWhomKubernetesKnowsAndAllowsItGetsThrough(t *testing.T) {
	defer func(retries int) { reviewRetries.Steps = retries }(reviewRetries.Steps)
	reviewRetries.Steps = 1
	for name, c := range map[string]struct {
		header, value, path string
		broken              string
		want                int
	}{
		"no token":                          {"Accept", "*/*", "/metrics", "", 401},
		"a token that nobody knows":         {"Authorization", "Bearer ?", "/metrics", "", 401},
		"no bearer":                         {"Authorization", "viewer", "/metrics", "", 401},
		"who may":                           {"Authorization", "Bearer viewer", "/metrics", "", 200},
		"who may, through the proxy":        {headerAuthorization, "Bearer viewer", "/metrics", "", 200},
		"who may not":                       {"Authorization", "Bearer other", "/metrics", "", 403},
		"who may not, through the proxy":    {headerAuthorization, "Bearer other", "/metrics", "", 403},
		"who may, but another path":         {"Authorization", "Bearer viewer", status.Path, "", 403},
		"an API server that does not say":   {"Authorization", "Bearer viewer", "/metrics", "subjectaccessreviews", 503},
		"nor who it is":                     {"Authorization", "Bearer viewer", "/metrics", "tokenreviews", 503},
		"who pretends to be the API server": {"X-Remote-User", "viewer", "/metrics", "", 401},
	} {
		access := accessOf(t, reviewer(t, c.broken))
		request := httptest.NewRequest("GET", c.path, nil)
		request.Header.Set(c.header, c.value)
		answer := httptest.NewRecorder()
		access.Limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })).ServeHTTP(answer, request)
		assert.Equal(t, c.want, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, c.want == 200, answer.Body.String() == "secret", name)
	}
}

func accessOf(t *testing.T, kube *rest.Config) *Access {
	t.Helper()
	client, err := NewReviewsClient(kube)
	require.NoError(t, err)
	allowed, err := NewAccess(client)
	require.NoError(t, err)
	return allowed
}

func TestBogusTokensOfOneAddressDoNotKeepOthersOut(t *testing.T) {
	allowed := accessOf(t, reviewer(t, "")).Limit(http.NotFoundHandler())
	ask := func(from, token string) int {
		request := httptest.NewRequest("GET", "/metrics", nil)
		request.RemoteAddr = from
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		allowed.ServeHTTP(answer, request)
		return answer.Code
	}
	codes := map[int]int{}
	for i := range 1000 {
		codes[ask(fmt.Sprintf("10.1.2.7:%d", 1024+i), fmt.Sprint("bogus", i))]++
	}
	assert.GreaterOrEqual(t, codes[401], callerBurst)
	assert.Greater(t, codes[429], 500)
	assert.Equal(t, 404, ask("10.1.2.8:1024", "viewer"), "another is let through")
}
