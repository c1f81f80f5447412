package app

import (
	"context"
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

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/ess/processors"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/supervisor"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/pricing"
)

const (
	// shutdownGrace is how long requests under way may take when the process ends.
	shutdownGrace = 5 * time.Second
	// readTimeout and idleTimeout are how long a caller may take to send a request, and may keep a connection without one:
	// notices are pushed from the outside. There is no limit on answers, since profiles take as long as they are asked to.
	readTimeout, idleTimeout = 10 * time.Second, 2 * time.Minute
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
	klog.Infof("Serving on %s", listener.Addr())

	// When the leader's work ends, with or without an error, so does the server.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, listener, handler(config, health, ready, snapshotter, watchdog)) })
	group.Go(func() error { return serveNotices(ctx, config) })
	state := &statusHandler{config: config}
	group.Go(func() error { return serveSecurely(ctx, config, state) })
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

// serve answers requests until ctx ends, and with it every request.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
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

// handler is what Cluster Autoscaler serves, /healthz and /readyz.
func handler(config *Config, health *metrics.HealthCheck, ready *readiness, snapshotter debuggingsnapshot.DebuggingSnapshotter, watchdog healthz.HealthChecker) http.Handler {
	mux := mux.NewPathRecorderMux("gpu-spot-autoscaler")
	if config.Secure.Address == "" {
		mux.Handle("/metrics", legacyregistry.Handler())
	}
	mux.HandleFunc("/health-check", health.ServeHTTP)
	mux.Handle("/readyz", ready)
	healthz.InstallHandler(mux, healthz.PingHealthz, watchdog)
	if config.Autoscaling.DebuggingSnapshotEnabled {
		mux.HandleFunc("/snapshotz", snapshotter.ResponseHandler)
	}
	if config.Autoscaling.EnableProfiling {
		routes.Profiling{}.Install(mux)
	}
	return mux
}

var registerOnce sync.Once

// registerMetrics can be called again: the registry is the process's.
func registerMetrics(perNodeGroup bool) {
	registerOnce.Do(func() {
		metrics.RegisterAll(perNodeGroup)
		registry := legacyregistry.Registerer()
		alicloud.RegisterMetrics(registry)
		problems.RegisterMetrics(registry)
		ess.RegisterMetrics(registry)
		processors.RegisterMetrics(registry)
		pricing.RegisterMetrics(registry)
		jobs.RegisterMetrics(registry)
		supervisor.RegisterMetrics(registry)
		reclaim.RegisterMetrics(registry)
	})
}
