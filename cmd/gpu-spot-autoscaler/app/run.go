package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/kubernetes"
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
	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/scaledown"
	"gpu-spot-autoscaler/cloudprovider/processors/scaleup"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/processors/templates"
	"gpu-spot-autoscaler/cloudprovider/processors/trigger"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/version"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/pricing/market"
)

// Run serves health, metrics and the status, and autoscales the cluster while it is the leader. It returns nil if ctx ended and the
// lease was released. After an error the process should end at once: some parts may still be running. After a lost lease they are
// not even waited for, since another process may lead.
func Run(ctx context.Context, config *Config) error {
	registerMetrics(config.Autoscaling.EmitPerNodeGroupMetrics)
	listener, err := net.Listen("tcp", config.Autoscaling.Address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr())
	reviews, err := serving.NewReviewsClient(config.KubeConfig)
	if err != nil {
		return err
	}
	access, err := serving.NewAccess(reviews)
	if err != nil {
		return err
	}
	r := newReplica(config, reviews)
	secure := serving.NewSecure(serving.SecureConfig{
		Options: config.Secure, Host: config.DeploymentName + "." + config.Autoscaling.ConfigNamespace + ".svc",
		Access: access, Status: r.status, Costs: r.costs, Explain: r.explanations, Diagnostics: r.diagnostics,
	})

	// The servers end with the leader's work, whether or not that ends with an error.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		open := r.open()
		return serving.Serve(ctx, listener, nil, open.WriteTimeout(), open.Handler())
	})
	group.Go(func() error { return serveNotices(ctx, config) })
	group.Go(func() error { return secure.Serve(ctx) })
	lost := make(chan struct{})
	group.Go(func() error {
		defer cancel()
		err := lead(ctx, config, r.watchdog, r.readiness.StandBy, func(ctx context.Context) error { return autoscale(ctx, r) })
		if errors.Is(err, errLostLease) {
			close(lost)
		}
		return err
	})
	return unlessLost(lost, group.Wait)
}

// unlessLost returns what wait returns, or errLostLease at once if lost is closed before.
func unlessLost(lost <-chan struct{}, wait func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		return err
	case <-lost:
		return errLostLease
	}
}

// replica is what a process has whether or not it leads.
type replica struct {
	config      *Config
	health      *metrics.HealthCheck
	watchdog    *leaderelection.HealthzAdaptor
	snapshotter snapshotter
	diagnostics *serving.Diagnostics
	readiness   *serving.Readiness
	status      *serving.Status
	costs       *serving.Costs

	explanations *serving.Explanations
}

func newReplica(config *Config, reviews kubernetes.Interface) *replica {
	r := &replica{
		config:      config,
		health:      metrics.NewHealthCheck(config.Autoscaling.MaxInactivityTime, config.Autoscaling.MaxFailingTime),
		watchdog:    leaderelection.NewLeaderHealthzAdaptor(config.LeaderElection.LeaseDuration.Duration),
		snapshotter: snapshotter{debuggingsnapshot.NewDebuggingSnapshotter(config.Autoscaling.DebuggingSnapshotEnabled)},
		readiness:   &serving.Readiness{},
		costs:       &serving.Costs{},

		explanations: &serving.Explanations{},
		status: serving.NewStatus(serving.StatusConfig{
			Client: reviews, LeaderElection: config.LeaderElection, Identity: config.Identity, Clock: config.Clock,
		}),
	}
	var snapshots http.HandlerFunc
	if config.Autoscaling.DebuggingSnapshotEnabled {
		snapshots = r.snapshotter.ResponseHandler
	}
	r.diagnostics = serving.NewDiagnostics(config.Autoscaling.EnableProfiling, snapshots)
	return r
}

// open returns what is served on --address.
func (r *replica) open() serving.Open {
	open := serving.Open{Loop: r.health, Readiness: r.readiness, Watchdog: r.watchdog}
	if r.config.Secure.Address == "" {
		open.Diagnostics = r.diagnostics
	}
	return open
}

// snapshotter is core's debugging snapshotter without its Cleanup, which reads the request to cancel without holding its lock.
// There is no request to cancel by then: requests end with the server.
type snapshotter struct {
	debuggingsnapshot.DebuggingSnapshotter
}

// Cleanup does nothing.
func (snapshotter) Cleanup() {}

var registerOnce sync.Once

// registerMetrics registers everything at the first call only, since the registry is the process's.
func registerMetrics(perNodeGroup bool) {
	registerOnce.Do(func() {
		metrics.RegisterAll(perNodeGroup)
		registerOwnMetrics(legacyregistry.Registerer())
	})
}

// registerOwnMetrics registers those of this project. It panics if they are registered already.
func registerOwnMetrics(registry prometheus.Registerer) {
	for _, register := range []func(prometheus.Registerer){
		version.RegisterMetrics,
		rpc.RegisterMetrics,
		problems.RegisterMetrics,
		ess.RegisterMetrics,
		customresources.RegisterMetrics,
		templates.RegisterMetrics,
		podlist.RegisterMetrics,
		scaleup.RegisterMetrics,
		scaledown.RegisterMetrics,
		spotfirst.RegisterMetrics,
		trigger.RegisterMetrics,
		explain.RegisterMetrics,
		pricing.RegisterMetrics,
		market.RegisterMetrics,
		ledger.RegisterMetrics,
		jobs.RegisterMetrics,
		supervisor.RegisterMetrics,
		reclaim.RegisterMetrics,
	} {
		register(registry)
	}
}
