package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

const (
	maxRequestBody = 4096
	maxHeaderBytes = 8192
	// recordTimeout is how long a word may take to be written. Whoever brings it tries again.
	recordTimeout = 10 * time.Second
	shutdownGrace = 2 * time.Second
	// A node has some dozens of pods, each with a word now and then.
	wordsPerSecond, wordsBurst = 10, 50
)

// reclaimAnswer is the answer to GET /v1/reclaim. Both are null while there is no notice.
type reclaimAnswer struct {
	// Deadline is when the node goes, RFC 3339 UTC.
	Deadline *time.Time `json:"deadline"`
	// SecondsLeft is not below 0.
	SecondsLeft *int64 `json:"seconds_left"`
}

// handler serves the pods of the node, and whoever asks for health and metrics.
func (a *agent) handler(allowed guard) http.Handler {
	limit := rate.NewLimiter(wordsPerSecond, wordsBurst)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/reclaim", allowed.only(a.serveReclaim))
	mux.HandleFunc("POST /v1/checkpoint-acknowledged", allowed.only(func(w http.ResponseWriter, r *http.Request) {
		if !limit.Allow() {
			http.Error(w, "too many acknowledgements at once", http.StatusTooManyRequests)
			return
		}
		a.serveWord(w, r)
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("GET /metrics", serveMetrics)
	return mux
}

func (a *agent) serveReclaim(w http.ResponseWriter, _ *http.Request) {
	var answer reclaimAnswer
	if deadline := a.notice(); !deadline.IsZero() {
		left := max(0, int64(deadline.Sub(a.clock.Now()).Seconds()))
		answer = reclaimAnswer{&deadline, &left}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // whoever asked may have gone
}

// serveWord answers 204 when the word stands on the Node and not before, 409 where nobody waits for it, and 503 where it
// could not be written and is to be brought again.
func (a *agent) serveWord(w http.ResponseWriter, r *http.Request) {
	var said word
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBody))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&said)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if err == nil {
		err = said.validate()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), recordTimeout)
	defer cancel()
	switch err := a.record(ctx, said); {
	case err == nil:
		words.value.Add(1)
		klog.InfoS("A checkpoint was saved", "id", said.ID, "pod", klog.KRef(said.Namespace, said.Pod))
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errNoNotice):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		nodeFailures.value.Add(1)
		klog.ErrorS(err, "An acknowledgement was not recorded", "id", said.ID, "pod", klog.KRef(said.Namespace, said.Pod))
		http.Error(w, "the acknowledgement could not be recorded, try again", http.StatusServiceUnavailable)
	}
}

// guard says who may ask and speak.
type guard func(caller netip.Addr) bool

// only refuses callers that belong to another node. What the node itself sends is its own.
func (g guard) only(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		from := caller.Addr().Unmap()
		if !from.IsLoopback() && from != localAddress(r) && !g(from) {
			http.Error(w, "not a pod of this node", http.StatusForbidden)
			return
		}
		handle(w, r)
	}
}

// localAddress is the one at which the request came in.
func localAddress(r *http.Request) netip.Addr {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if tcp, ok := local.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// podOfThisNode goes by the addresses that this node gives its pods. They are unknown where pods have addresses of the
// VPC, as with Terway, and until the Node was read: then it lets everybody in.
func (a *agent) podOfThisNode(caller netip.Addr) bool {
	a.mu.Lock()
	self := a.self
	a.mu.Unlock()
	if self == nil {
		return true
	}
	told := false
	for _, cidr := range self.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			if told = true; prefix.Contains(caller) {
				return true
			}
		}
	}
	return !told
}

// among lets in who is in one of the networks.
func among(networks []netip.Prefix) guard {
	return func(caller netip.Addr) bool {
		for _, network := range networks {
			if network.Contains(caller) {
				return true
			}
		}
		return false
	}
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout: 5 * time.Second, WriteTimeout: 2 * recordTimeout, IdleTimeout: time.Minute,
	}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the pods of the node: %w", err)
	}
	return nil
}
