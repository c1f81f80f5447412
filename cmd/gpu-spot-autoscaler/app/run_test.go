package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	caconfig "k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing"
)

func TestPathsOfTheOpenAddress(t *testing.T) {
	registerMetrics(false)
	registerMetrics(false) // may be called again
	tests := map[string]struct {
		autoscaling caconfig.AutoscalingOptions
		path        string
		status      int
		body        string
	}{
		"health":                   {path: "/healthz", status: 200, body: "ok"},
		"health of the lease":      {path: "/healthz/leaderElection", status: 200, body: "ok"},
		"health of the loop":       {path: "/health-check", status: 200, body: "OK"},
		"metrics of ours":          {path: "/metrics", status: 200, body: "gpu_spot_reclaiming_nodes"},
		"metrics of core":          {path: "/metrics", status: 200, body: "cluster_autoscaler_"},
		"no snapshot by default":   {path: "/snapshotz", status: 404},
		"no profiles by default":   {path: "/debug/pprof/", status: 404},
		"profiles where asked for": {autoscaling: caconfig.AutoscalingOptions{EnableProfiling: true}, path: "/debug/pprof/", status: 200},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := &Config{Options: &options.Options{Autoscaling: test.autoscaling}}
			response := httptest.NewRecorder()
			newReplica(config, fake.NewClientset()).open().Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, test.path, nil))
			assert.Equal(t, test.status, response.Code)
			assert.Contains(t, response.Body.String(), test.body)
		})
	}
}

func TestDiagnosticsAreServedSecurelyOrOpenlyButNotBoth(t *testing.T) {
	config := candidate(fake.NewClientset(), "a")
	config.Autoscaling.EnableProfiling, config.Autoscaling.DebuggingSnapshotEnabled = true, true
	ended, cancel := context.WithCancel(t.Context()) // a snapshot waits for a loop otherwise
	cancel()
	for address, want := range map[string]int{"": 200, ":8444": 404} {
		config.Secure.Address = address
		replica := newReplica(config, fake.NewClientset())
		replica.readiness.Lead(problems.NewBoard(discardedEvents{}, testingclock.NewFakePassiveClock(time.Now())))
		assert.Equal(t, address != "", replica.open().WriteTimeout() > 0, "only profiles and snapshots may take for as long as they like")
		open := replica.open().Handler()
		get := func(path string) *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			open.ServeHTTP(answer, httptest.NewRequestWithContext(ended, "GET", path, nil))
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

func TestEventsAreAboutOurDeployment(t *testing.T) {
	client := fake.NewClientset(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: options.Name, UID: "uid"}})
	recorder := record.NewFakeRecorder(2)
	recorder.IncludeObject = true
	known := newDeploymentEvents(t.Context(), client, recorder, "kube-system", options.Name)
	assert.Equal(t, "uid", string(known.deployment.UID))
	unknown := newDeploymentEvents(t.Context(), client, recorder, "kube-system", "other")
	assert.Empty(t, unknown.deployment.UID)

	explainTo(unknown)(pricing.Decision{Chosen: pricing.Candidate{NodeGroup: "cheap", Nodes: 1, Pods: 2, GPUs: 2, Price: 4, Priced: true}})
	event := <-recorder.Events
	assert.Contains(t, event, "Normal SpotOfferingChosen cheap: 1 nodes for 2 pods")
	assert.Contains(t, event, "no other can do it for less")
	assert.Contains(t, event, "Deployment")
}

func TestIdentity(t *testing.T) {
	t.Setenv("POD_NAME", "gpu-spot-autoscaler-0")
	pod, err := identity()
	require.NoError(t, err)
	assert.Equal(t, "gpu-spot-autoscaler-0", pod, "a container takes up the lease of the one before it")

	t.Setenv("POD_NAME", "")
	one, err := identity()
	require.NoError(t, err)
	two, err := identity()
	require.NoError(t, err)
	assert.NotEqual(t, one, two, "two processes on one host are two candidates")
}

func TestCallersOfTheStatusCostTheRenewalOfTheLeaseNothing(t *testing.T) {
	election, reviews := fake.NewClientset(), fake.NewClientset()
	config := candidate(election, "a")
	config.Clock = testingclock.NewFakeClock(time.Now())
	newReplica(config, reviews).status.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", status.Path, nil))
	assert.Empty(t, election.Actions())
	assert.Len(t, reviews.Actions(), 1)
}
