package app

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	caconfig "k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	certutil "k8s.io/client-go/util/cert"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing"
)

func TestHandler(t *testing.T) {
	registerMetrics(false)
	registerMetrics(false) // as often as one likes
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
			insight := newInsight(config, debuggingsnapshot.NewDebuggingSnapshotter(false))
			served := handler(config, metrics.NewHealthCheck(time.Minute, time.Minute), &readiness{}, insight, watchdog())
			response := httptest.NewRecorder()
			served.ServeHTTP(response, httptest.NewRequest(http.MethodGet, test.path, nil))
			assert.Equal(t, test.status, response.Code)
			assert.Contains(t, response.Body.String(), test.body)
		})
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	asked := make(chan struct{})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	go func() { ended <- serve(ctx, listener, nil, writeTimeout, mux) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/quick")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	slow := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String() + "/slow")
		if err == nil {
			err = response.Body.Close()
		}
		slow <- err
	}()
	<-asked
	cancel()
	<-slow // ends with the rest, well or not
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("still serves")
	}
}

func TestCallersThatDawdleAreCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		sent string
		want time.Duration
	}{
		"in the headers":                 {"POST / HTTP/1.1\r\n", readTimeout},
		"in the body":                    {"POST / HTTP/1.1\r\nHost: us\r\nContent-Length: 2\r\n\r\n{", readTimeout},
		"in sending the next request":    {"GET / HTTP/1.1\r\nHost: us\r\n\r\n", idleTimeout},
		"in sending anything whatsoever": {"", readTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				listener := make(pipes, 1)
				listener <- server
				go func() {
					_ = serve(t.Context(), listener, nil, writeTimeout, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
					}))
				}()
				began := time.Now()
				go func() { _, _ = io.WriteString(client, test.sent) }()
				_, _ = io.Copy(io.Discard, client)
				assert.Equal(t, test.want, time.Since(began).Round(time.Second))
				close(listener)
				synctest.Wait()
			})
		})
	}
}

func TestCallersThatDoNotReadTheAnswerAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		listener := make(pipes, 1)
		listener <- server
		ended := make(chan time.Time, 1)
		go func() {
			_ = serve(t.Context(), listener, nil, writeTimeout, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, 1<<20))
				ended <- time.Now()
			}))
		}()
		began := time.Now()
		_, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: us\r\n\r\n")
		require.NoError(t, err)
		assert.Equal(t, writeTimeout, (<-ended).Sub(began))
		close(listener)
		synctest.Wait()
	})
}

func TestOneAddressCannotKeepMoreConnectionsThanItsShare(t *testing.T) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("ours.example", nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	for name, secured := range map[string]*tls.Config{"open": nil, "over TLS": {Certificates: []tls.Certificate{pair}}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, listener, secured, writeTimeout, http.NotFoundHandler()) }()
		first, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		for range maxConnectionsOfCaller {
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
		}
		require.NoError(t, first.SetReadDeadline(time.Now().Add(readTimeout/2)))
		_, err = first.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF, name)
		cancel()
		assert.NoError(t, <-ended, name)
	}
}

// pipes is a listener to which somebody connects for each connection in it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

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
