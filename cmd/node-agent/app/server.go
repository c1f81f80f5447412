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

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/wire"
	"gpu-spot-autoscaler/cmd/internal/callers"
)

const (
	maxRequestBody = 4096
	maxHeaderBytes = 8192
	// recordTimeout is how long writing an acknowledgement may take. After it the caller has to try again.
	recordTimeout = 10 * time.Second
	shutdownGrace = 2 * time.Second
	idleTimeout   = 30 * time.Second

	maxConnections, maxConnectionsOfCaller = 512, 32

	// Requests of one pod. A process that waits for a notice asks every two seconds, and a pod has a few dozen processes at
	// most.
	requestsPerSecond, requestsBurst = 20, 100
	// Requests of the node itself and of all pods on its network, which have the same address.
	hostRequestsPerSecond, hostRequestsBurst = 500, 2500
	// Acknowledgements of one pod, or for one request from the node's own address. Each may need a write to the Node.
	acknowledgementsPerSecond, acknowledgementsBurst = 1, 20
)

// reclaimAnswer is the answer to GET /v1/reclaim. The first two are null while there is no notice.
type reclaimAnswer struct {
	// Deadline is when the instance is released, RFC 3339 UTC.
	Deadline *time.Time `json:"deadline"`
	// SecondsLeft is never below 0.
	SecondsLeft *int64 `json:"seconds_left"`
	// CheckpointInterval is how many seconds the caller is advised to train from one checkpoint to the next, left out if that is not known.
	CheckpointInterval int64 `json:"checkpoint_interval_seconds,omitempty"`
}

// handler serves the pods of the node, and health and metrics.
func (a *agent) handler(allowed guard) http.Handler {
	requests := &limits{callers.NewRates(requestsPerSecond, requestsBurst), callers.NewRates(hostRequestsPerSecond, hostRequestsBurst)}
	acknowledgements := callers.NewRates(acknowledgementsPerSecond, acknowledgementsBurst)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/reclaim", a.only(allowed, requests, func(w http.ResponseWriter, _ *http.Request, caller string) {
		a.serveReclaim(w, caller)
	}))
	mux.HandleFunc("POST /v1/checkpoint-acknowledged", a.only(allowed, requests, func(w http.ResponseWriter, r *http.Request, caller string) {
		a.serveAcknowledgement(w, r, caller, acknowledgements)
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("GET /metrics", serveMetrics)
	return mux
}

func (a *agent) serveReclaim(w http.ResponseWriter, caller string) {
	answer := reclaimAnswer{CheckpointInterval: int64(a.intervalOf(caller).Seconds())}
	if deadline := a.notice(); !deadline.IsZero() {
		left := max(0, int64(deadline.Sub(a.clock.Now()).Seconds()))
		answer.Deadline, answer.SecondsLeft = &deadline, &left
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the caller has closed the connection
}

// serveAcknowledgement answers 204 once the acknowledgement is written on the Node, 409 if it is not awaited from the caller,
// and 503 if it could not be written and has to be sent again.
func (a *agent) serveAcknowledgement(w http.ResponseWriter, r *http.Request, caller string, limits *callers.Rates) {
	sent, status, err := readAcknowledgement(w, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), recordTimeout)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("caller", caller, "id", sent.ID, "pod", klog.KRef(sent.Namespace, sent.Pod))
	if err = a.awaited.refuse(ctx, sent, caller); err == nil {
		if !limits.Allow(caller+"/"+sent.ID, a.clock.Now()) {
			http.Error(w, "too many acknowledgements at once", http.StatusTooManyRequests)
			return
		}
		err = a.record(ctx, sent, caller)
	}
	switch {
	case err == nil:
		acknowledged.value.Add(1)
		logger.Info("Recorded an acknowledgement")
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errNotAwaited), errors.Is(err, errNeedsID):
		refused.value.Add(1)
		logger.V(1).Info("Refused an acknowledgement that is not awaited")
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		nodeFailures.value.Add(1)
		logger.Error(err, "Recording an acknowledgement failed")
		http.Error(w, "the acknowledgement could not be recorded, try again", http.StatusServiceUnavailable)
	}
}

// readAcknowledgement returns the acknowledgement in the request, or an error and the status to answer with.
func readAcknowledgement(w http.ResponseWriter, r *http.Request) (sent acknowledgement, status int, err error) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBody))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&sent)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return sent, http.StatusRequestEntityTooLarge, err
	}
	if err == nil {
		err = sent.validate()
	}
	return sent, http.StatusBadRequest, err
}

// guard returns whether the caller is answered.
type guard func(caller netip.Addr) bool

// limits are the rate limits of each pod, and of the node's own address.
type limits struct{ pods, host *callers.Rates }

// only refuses callers of another node and callers that ask too often. It passes the handler the caller: an address, or
// api.CallerHost for the node itself and the pods on its network.
func (a *agent) only(allowed guard, limits *limits, handle func(w http.ResponseWriter, r *http.Request, caller string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		remote, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		from := remote.Addr().Unmap().WithZone("")
		caller, rates := wire.Caller(from), limits.pods
		if from == localAddress(r) {
			caller, rates = api.CallerHost, limits.host
		}
		switch {
		case caller != api.CallerHost && !allowed(from):
			http.Error(w, "not a pod of this node", http.StatusForbidden)
			return
		case !rates.Allow(caller, a.clock.Now()):
			http.Error(w, "too many requests at once", http.StatusTooManyRequests)
			return
		}
		handle(w, r, caller)
	}
}

// localAddress returns the address at which the request was received. A caller in the same network namespace has the same
// address, since Linux uses it as the source of such connections. A pod with a network of its own has another.
func localAddress(r *http.Request) netip.Addr {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if tcp, ok := local.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// among returns a guard that answers callers in one of the networks.
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

// serve answers requests until ctx ends, and returns once those under way have ended, after shutdownGrace at the latest.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	connections := callers.BoundConnections(listener, maxConnections, maxConnectionsOfCaller)
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes, ConnState: connections.Note,
		ReadTimeout: 5 * time.Second, WriteTimeout: 2 * recordTimeout, IdleTimeout: idleTimeout,
	}
	shutDown := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shutDown)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(connections)
	if !stop() {
		<-shutDown // Serve returns as soon as Shutdown begins
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the pods of the node: %w", err)
	}
	return nil
}
