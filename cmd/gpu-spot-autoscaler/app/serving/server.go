// Package serving serves what the process says over HTTP: health, readiness, metrics and the status.
//
// A process has up to three listeners. That of --address is for kubelets and for whoever reaches it. That of --secure-address
// lets through only callers that the API server knows and that RBAC allows the path; see [Access]. That of --notice-address
// takes pushed reclaim notices, with the handler of package push.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"gpu-spot-autoscaler/cmd/internal/callers"
)

const (
	// shutdownGrace is how long requests under way may take when the process ends. Then their contexts end.
	shutdownGrace = 5 * time.Second
	// readTimeout is how long a caller may take to send a request, and idleTimeout how long it may keep a connection without one:
	// notices come from outside of the cluster.
	readTimeout, idleTimeout = 10 * time.Second, 2 * time.Minute
	// WriteTimeout is how long an answer may take to be made and to be read, unless the handler needs more.
	WriteTimeout = 30 * time.Second
	// maxConnectionsOfCaller is generous, since the API server's proxy and a load balancer are one address each.
	maxConnections, maxConnectionsOfCaller = 512, 128
)

// Serve answers requests until ctx ends, and returns once those under way have ended, after shutdownGrace at the latest. It serves
// TLS if secured is not nil. An answer may take for writeTimeout; 0 means without a limit.
func Serve(ctx context.Context, listener net.Listener, secured *tls.Config, writeTimeout time.Duration, handler http.Handler) error {
	connections := callers.BoundConnections(listener, maxConnections, maxConnectionsOfCaller)
	listener = connections
	if secured != nil {
		listener = tls.NewListener(connections, secured)
	}
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	server := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ConnState: connections.Note,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	shutDown := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shutDown)
		grace, cancel := context.WithTimeout(requests, shutdownGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-shutDown // Serve returns as soon as Shutdown begins
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}
