package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/problems"
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
		allowed := reviewsOf(t, reviewer(t, c.broken))
		request := httptest.NewRequest("GET", c.path, nil)
		request.Header.Set(c.header, c.value)
		answer := httptest.NewRecorder()
		allowed.only(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })).ServeHTTP(answer, request)
		assert.Equal(t, c.want, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, c.want == 200, answer.Body.String() == "secret", name)
	}
}

func reviewsOf(t *testing.T, kube *rest.Config) *reviews {
	t.Helper()
	client, err := reviewsClient(&Config{KubeConfig: kube})
	require.NoError(t, err)
	allowed, err := newReviews(client)
	require.NoError(t, err)
	return allowed
}

func TestBogusTokensOfOneAddressDoNotKeepOthersOut(t *testing.T) {
	allowed := reviewsOf(t, reviewer(t, "")).only(http.NotFoundHandler())
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

func TestWhatLooksInsideIsServedSecurelyOrOpenlyButNotBoth(t *testing.T) {
	config := candidate(fake.NewClientset(), "a")
	config.Autoscaling.EnableProfiling, config.Autoscaling.DebuggingSnapshotEnabled = true, true
	ready := &readiness{}
	ready.lead(problems.NewBoard(unheard{}, testingclock.NewFakePassiveClock(time.Now())))
	for address, want := range map[string]int{"": 200, ":8444": 404} {
		config.Secure.Address = address
		insight := newInsight(config, debuggingsnapshot.NewDebuggingSnapshotter(false))
		open := handler(config, metrics.NewHealthCheck(time.Minute, time.Minute), ready, insight, watchdog())
		get := func(path string) *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			open.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
			return answer
		}
		for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/snapshotz"} {
			assert.Equal(t, want == 404, get(path).Code == 404, "%s%s", address, path)
		}
		answer := get("/readyz?verbose")
		assert.Equal(t, 500, answer.Code)
		assert.Equal(t, address == "", strings.Contains(answer.Body.String(), "has not succeeded yet"), answer.Body)
	}
}

func TestTheCertificateIsThatOfTheFilesOrMadeAtStart(t *testing.T) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("ours.example", nil, nil)
	require.NoError(t, err)
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	require.NoError(t, os.WriteFile(certFile, certificate, 0o600))
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	for want, files := range map[string][2]string{"ours.example": {certFile, keyFile}, "gpu.kube-system.svc": {}} {
		config := candidate(fake.NewClientset(), "a")
		config.DeploymentName, config.Autoscaling.ConfigNamespace = "gpu", "kube-system"
		config.Secure.CertFile, config.Secure.KeyFile = files[0], files[1]
		ctx, cancel := context.WithCancel(t.Context())
		group, ctx := errgroup.WithContext(ctx)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		secured, err := secure(ctx, group, config)
		require.NoError(t, err)
		group.Go(func() error { return serve(ctx, listener, secured, writeTimeout, http.NotFoundHandler()) })
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		assert.Contains(t, conn.ConnectionState().PeerCertificates[0].DNSNames, want)
		assert.NoError(t, conn.Close())
		cancel()
		assert.NoError(t, group.Wait())
	}
}

func TestAReplicaThatDoesNotLeadSaysWhoDoes(t *testing.T) {
	now := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		holder  string
		renewed time.Time
		want    string
	}{
		"another leads":                 {"replica-b", now.Add(-5 * time.Second), "replica-b"},
		"the one that led has gone":     {"replica-b", now.Add(-time.Minute), ""},
		"the lease was given back":      {"", now, ""},
		"there has never been a leader": {"none", time.Time{}, ""},
	} {
		client := fake.NewClientset()
		election := fake.NewClientset()
		config := candidate(election, "replica-a")
		config.Clock = testingclock.NewFakeClock(now)
		if c.holder != "none" {
			_, err := client.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: config.LeaderElection.ResourceName},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: &c.holder, RenewTime: ptr.To(metav1.NewMicroTime(c.renewed)), LeaseDurationSeconds: ptr.To[int32](15),
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		answer := httptest.NewRecorder()
		(&statusHandler{config: config, client: client}).ServeHTTP(answer, httptest.NewRequest("GET", status.Path, nil))
		assert.Equal(t, http.StatusMisdirectedRequest, answer.Code, name)
		assert.Empty(t, election.Actions(), "%s: callers cost the renewal of the lease nothing", name)
		assert.JSONEq(t, strings.ReplaceAll(`{"apiVersion": "gpu-spot.autoscaling/v1", "kind": "Status", "time": "2026-01-05T09:00:00Z",
			"replica": "replica-a", "leader": "LEADER", "refreshed": null, "pools": [], "reclaims": [], "jobs": [], "problems": []}`, "LEADER", c.want),
			answer.Body.String(), name)
		var said status.Status
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &said))
		assert.Equal(t, c.want, said.Leader)
	}
}
