package serving

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	componentconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cloudprovider/status/view"
)

// leaseTimeout bounds the request for the lease.
const leaseTimeout = 5 * time.Second

// Describer adds to a status what the leader knows. It has to be safe for concurrent use.
type Describer interface {
	Describe(*status.Status)
}

// StatusConfig configures a Status. Everything is required.
type StatusConfig struct {
	// Client reads the lease. It must not be the client that renews the lease, which must not wait for callers.
	Client         kubernetes.Interface
	LeaderElection componentconfig.LeaderElectionConfiguration
	// Identity is this process as a candidate for the lease.
	Identity string
	Clock    clock.PassiveClock
}

// Status answers with a status.Status, as JSON or as a page: with 200 while this process leads and can describe the cluster, and otherwise with 421
// (Misdirected Request) and the name of the leader. It is safe for concurrent use.
type Status struct {
	config StatusConfig
	// leading is nil while this process does not lead, or has not yet listed the objects of the cluster.
	leading atomic.Pointer[Describer]
}

// NewStatus returns a handler of a process that does not lead.
func NewStatus(config StatusConfig) *Status { return &Status{config: config} }

// Lead makes the handler ask the describer from now on until ctx ends.
func (s *Status) Lead(ctx context.Context, describer Describer) {
	s.leading.Store(&describer)
	context.AfterFunc(ctx, func() { s.leading.Store(nil) })
}

// ServeHTTP answers with the status as JSON.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, code := s.answer(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	unlessRead(r, encoder.Encode(answer))
}

// ServePage answers with the status as a page.
func (s *Status) ServePage(w http.ResponseWriter, r *http.Request) {
	answer, code := s.answer(r.Context())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", view.ContentSecurityPolicy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	unlessRead(r, view.WriteHTML(w, answer))
}

func unlessRead(r *http.Request, err error) {
	if err != nil {
		klog.FromContext(r.Context()).V(1).Info("The caller did not read the status to its end", "err", err)
	}
}

// answer returns the status, and the code of the answer.
func (s *Status) answer(ctx context.Context) (*status.Status, int) {
	answer := &status.Status{
		APIVersion: status.APIVersion, Kind: status.Kind, Time: s.config.Clock.Now().UTC().Truncate(time.Second), Replica: s.config.Identity,
		Pools: []status.Pool{}, Pending: []status.PendingPod{}, Reclaims: []status.Reclaim{}, Jobs: []status.JobReclaim{}, Problems: []status.Problem{},
	}
	if leading := s.leading.Load(); leading != nil {
		answer.Leader = answer.Replica
		(*leading).Describe(answer)
		return answer, http.StatusOK
	}
	answer.Leader = s.leader(ctx)
	answer.Undescribed = answer.Leader != "" && answer.Leader == answer.Replica
	return answer, http.StatusMisdirectedRequest
}

// leader returns the identity of the leader, or "" if there is none or the lease cannot be read. Where none is elected, this process leads.
func (s *Status) leader(ctx context.Context) string {
	election := s.config.LeaderElection
	if !election.LeaderElect {
		return s.config.Identity
	}
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	lease, err := s.config.Client.CoordinationV1().Leases(election.ResourceNamespace).Get(ctx, election.ResourceName, metav1.GetOptions{})
	if err != nil {
		logger.Error(err, "Cannot read the lease for the status", "lease", klog.KRef(election.ResourceNamespace, election.ResourceName))
		return ""
	}
	renewed := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
	if s.config.Clock.Since(renewed.Time) > time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
