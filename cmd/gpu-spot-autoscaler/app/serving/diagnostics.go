package serving

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Diagnostics are the metrics, profiles and snapshots of the process, at the paths of Cluster Autoscaler. The active problems
// are not among them: Kubernetes lets everybody have the path /readyz (ClusterRole system:public-info-viewer), so the status has
// them.
type Diagnostics struct {
	handlers map[string]http.Handler
	profiles bool
	// writeTimeout is how long an answer may take, 0 for no limit: profiles take as long as the caller asks for, and snapshots
	// wait for a loop.
	writeTimeout time.Duration
}

// NewDiagnostics returns the metrics, and also profiles and core's debugging snapshots where they are enabled. The snapshots are
// disabled if their handler is nil.
func NewDiagnostics(profiles bool, snapshots http.HandlerFunc) *Diagnostics {
	d := &Diagnostics{
		handlers: map[string]http.Handler{"/metrics": legacyregistry.Handler()}, profiles: profiles, writeTimeout: WriteTimeout,
	}
	if snapshots != nil {
		d.handlers["/snapshotz"] = snapshots
	}
	if profiles || snapshots != nil {
		d.writeTimeout = 0
	}
	return d
}

// WriteTimeout returns how long an answer may take, or 0 for no limit.
func (d *Diagnostics) WriteTimeout() time.Duration { return d.writeTimeout }

func (d *Diagnostics) install(mux *mux.PathRecorderMux) {
	for path, handler := range d.handlers {
		mux.Handle(path, handler)
	}
	if d.profiles {
		routes.Profiling{}.Install(mux)
	}
}

// Open configures the handler of --address, which answers everybody.
type Open struct {
	// Loop answers /health-check: whether core's loop runs and succeeds.
	Loop http.Handler
	// Readiness answers /readyz.
	Readiness *Readiness
	// Watchdog fails /healthz if the leader does not renew its lease.
	Watchdog healthz.HealthChecker
	// Diagnostics are nil if they are served on --secure-address only. Then /readyz does not say why a replica is not ready.
	Diagnostics *Diagnostics
}

// WriteTimeout returns how long an answer may take, or 0 for no limit.
func (o Open) WriteTimeout() time.Duration {
	if o.Diagnostics == nil {
		return WriteTimeout
	}
	return o.Diagnostics.WriteTimeout()
}

// Handler returns a handler of the paths that a kubelet requests, and of the diagnostics.
func (o Open) Handler() http.Handler {
	mux := mux.NewPathRecorderMux("gpu-spot-autoscaler")
	if o.Diagnostics != nil {
		o.Diagnostics.install(mux)
		mux.Handle("/readyz", o.Readiness)
	} else {
		mux.HandleFunc("/readyz", o.Readiness.serveBriefly)
	}
	mux.Handle("/health-check", o.Loop)
	healthz.InstallHandler(mux, healthz.PingHealthz, o.Watchdog)
	return mux
}
