package app

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// leaseTimeout bounds the question who leads.
const leaseTimeout = 5 * time.Second

// statusHandler answers with a status.Status: 200 while this process leads, 421 (Misdirected Request) from one that does
// not, which says who does. It is safe for concurrent use.
type statusHandler struct {
	config *Config
	// client reads the lease. It is not ElectionClient, which renews it and is not to wait for callers.
	client kubernetes.Interface
	// leading are the parts of the leader; nil while this process does not lead, or lists what the cluster holds.
	leading atomic.Pointer[parts]
}

// lead has the parts asked from now until ctx ends. Their informers have synced.
func (h *statusHandler) lead(ctx context.Context, p *parts) {
	h.leading.Store(p)
	context.AfterFunc(ctx, func() { h.leading.Store(nil) })
}

func (h *statusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	said := status.Status{
		APIVersion: status.APIVersion, Kind: status.Kind, Time: h.config.Clock.Now().UTC().Truncate(time.Second), Replica: h.config.Identity,
		Pools: []status.Pool{}, Reclaims: []status.Reclaim{}, Jobs: []status.JobReclaim{}, Problems: []status.Problem{},
	}
	code := http.StatusOK
	if p := h.leading.Load(); p != nil {
		said.Leader = said.Replica
		p.describe(&said)
	} else {
		code = http.StatusMisdirectedRequest
		said.Leader = h.leader(r.Context())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(said); err != nil {
		klog.FromContext(r.Context()).V(1).Info("Sending the status failed", "err", err)
	}
}

// leader is empty where nobody leads, or that cannot be told.
func (h *statusHandler) leader(ctx context.Context) string {
	if !h.config.LeaderElection.LeaderElect {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	election := h.config.LeaderElection
	lease, err := h.client.CoordinationV1().Leases(election.ResourceNamespace).Get(ctx, election.ResourceName, metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reading the lease for the status failed", "lease", klog.KRef(election.ResourceNamespace, election.ResourceName))
		return ""
	}
	renewed := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
	if h.config.Clock.Since(renewed.Time) > time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// describe adds what the leader knows.
func (p *parts) describe(said *status.Status) {
	pools, refreshed := p.provider.Pools()
	said.Pools = pools
	if !refreshed.IsZero() {
		said.Refreshed = ptr.To(refreshed.UTC())
	}
	said.Reclaims, said.Jobs = p.reclaimer.Reclaims(), p.reclaimer.JobReclaims()
	for _, standing := range p.problems.Report().Problems {
		said.Problems = append(said.Problems, status.Problem{
			Source: string(standing.Source), Pool: standing.Pool, Reason: standing.Reason, Message: standing.Text(), Since: standing.Since.UTC(),
		})
	}
}
