package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the Kubernetes client and leader election
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/supervisor"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors/customresources"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/scaledown"
	"gpu-spot-autoscaler/cloudprovider/processors/scaleup"
	"gpu-spot-autoscaler/cloudprovider/processors/templates"
	"gpu-spot-autoscaler/cloudprovider/processors/trigger"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cmd/internal/callers"
	"gpu-spot-autoscaler/pricing"
)

const (
	// shutdownGrace is how long requests under way may take when the process ends.
	shutdownGrace = 5 * time.Second
	// readTimeout and idleTimeout are how long a caller may take to send a request, and may keep a connection without one:
	// notices are pushed from the outside. writeTimeout is how long an answer may take to make and to be read.
	readTimeout, writeTimeout, idleTimeout = 10 * time.Second, 30 * time.Second, 2 * time.Minute
	// maxConnectionsOfCaller is generous, since the API server's proxy and a load balancer are one address each.
	maxConnections, maxConnectionsOfCaller = 512, 128
)

// Run serves metrics and health, and scales the cluster while it is the leader. It returns nil when ctx ended and the
// lease was given back. Every error means that the process should end at once: parts of it may still be winding up.
func Run(ctx context.Context, config *Config) error {
	registerMetrics(config.Autoscaling.EmitPerNodeGroupMetrics)
	health := metrics.NewHealthCheck(config.Autoscaling.MaxInactivityTime, config.Autoscaling.MaxFailingTime)
	snapshotter := snapshotter{debuggingsnapshot.NewDebuggingSnapshotter(config.Autoscaling.DebuggingSnapshotEnabled)}
	ready := &readiness{}
	watchdog := leaderelection.NewLeaderHealthzAdaptor(config.LeaderElection.LeaseDuration.Duration)

	listener, err := net.Listen("tcp", config.Autoscaling.Address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr())

	// When the leader's work ends, with or without an error, so does the server.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	insight := newInsight(config, snapshotter)
	group.Go(func() error {
		return serve(ctx, listener, nil, insight.limit, handler(config, health, ready, insight, watchdog))
	})
	group.Go(func() error { return serveNotices(ctx, config) })
	reviewer, err := reviewsClient(config)
	if err != nil {
		return err
	}
	state := &statusHandler{config: config, client: reviewer}
	group.Go(func() error { return serveSecurely(ctx, config, reviewer, state, insight) })
	group.Go(func() error {
		defer cancel()
		return lead(ctx, config, watchdog, func(ctx context.Context) error {
			return autoscale(ctx, config, health, ready, snapshotter, state)
		})
	})
	return group.Wait()
}

// snapshotter is core's, which looks for a request to cancel without holding its lock. There is none to be cancelled by
// then: requests end with the server.
type snapshotter struct {
	debuggingsnapshot.DebuggingSnapshotter
}

// Cleanup does nothing.
func (snapshotter) Cleanup() {}

// serve answers requests until ctx ends, and with it every request: over TLS where secured is not nil, each for so long as
// limit, or without end where that is 0.
func serve(ctx context.Context, listener net.Listener, secured *tls.Config, limit time.Duration, handler http.Handler) error {
	connections := callers.BoundConnections(listener, maxConnections, maxConnectionsOfCaller)
	listener = connections
	if secured != nil {
		listener = tls.NewListener(connections, secured)
	}
	server := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, WriteTimeout: limit, IdleTimeout: idleTimeout, ConnState: connections.Note,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// handler is what a kubelet asks for, and the insight, unless that is served only to those whom Kubernetes allows it.
func handler(config *Config, health *metrics.HealthCheck, ready *readiness, insight *insight, watchdog healthz.HealthChecker) http.Handler {
	mux := mux.NewPathRecorderMux("gpu-spot-autoscaler")
	if config.Secure.Address == "" {
		insight.install(mux)
		mux.Handle("/readyz", ready)
	} else {
		mux.HandleFunc("/readyz", ready.serveBriefly)
	}
	mux.HandleFunc("/health-check", health.ServeHTTP)
	healthz.InstallHandler(mux, healthz.PingHealthz, watchdog)
	return mux
}

// insight is what a process tells of pools, prices, nodes and itself, in the paths of Cluster Autoscaler. What stands in the way
// is not in it: Kubernetes lets everybody have the path /readyz (ClusterRole system:public-info-viewer), and the status says it.
type insight struct {
	handlers map[string]http.Handler
	profiles bool
	// limit is how long an answer may take, 0 for no limit: profiles take as long as they are asked to, and snapshots wait for
	// a loop.
	limit time.Duration
}

func newInsight(config *Config, snapshotter debuggingsnapshot.DebuggingSnapshotter) *insight {
	i := &insight{
		handlers: map[string]http.Handler{"/metrics": legacyregistry.Handler()},
		profiles: config.Autoscaling.EnableProfiling, limit: writeTimeout,
	}
	if config.Autoscaling.DebuggingSnapshotEnabled {
		i.handlers["/snapshotz"] = http.HandlerFunc(snapshotter.ResponseHandler)
	}
	if config.Autoscaling.EnableProfiling || config.Autoscaling.DebuggingSnapshotEnabled {
		i.limit = 0
	}
	return i
}

func (i *insight) install(mux *mux.PathRecorderMux) {
	for path, handler := range i.handlers {
		mux.Handle(path, handler)
	}
	if i.profiles {
		routes.Profiling{}.Install(mux)
	}
}

var registerOnce sync.Once

// registerMetrics can be called again: the registry is the process's.
func registerMetrics(perNodeGroup bool) {
	registerOnce.Do(func() {
		metrics.RegisterAll(perNodeGroup)
		registry := legacyregistry.Registerer()
		rpc.RegisterMetrics(registry)
		problems.RegisterMetrics(registry)
		ess.RegisterMetrics(registry)
		customresources.RegisterMetrics(registry)
		templates.RegisterMetrics(registry)
		podlist.RegisterMetrics(registry)
		scaleup.RegisterMetrics(registry)
		scaledown.RegisterMetrics(registry)
		trigger.RegisterMetrics(registry)
		pricing.RegisterMetrics(registry)
		jobs.RegisterMetrics(registry)
		supervisor.RegisterMetrics(registry)
		reclaim.RegisterMetrics(registry)
	})
}
