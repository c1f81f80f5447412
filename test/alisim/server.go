package alisim

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/control"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/nodes"
)

// Options say how a world runs.
type Options struct {
	// Kube is the cluster in which booted instances become Nodes; nil means none.
	Kube *rest.Config
	// Nodes is used instead of Kube, if set.
	Nodes nodes.Cluster
	// Clock drives everything; default the real one. Pass lets time go by on one that stands still.
	Clock clock.Clock
	// Listen and ListenTLS are the addresses of the two endpoints; default a free port of 127.0.0.1.
	Listen, ListenTLS string
	// Dir is where the CA file goes; default a temporary directory, removed by Stop.
	Dir string
}

// Server is a running world. Its methods are safe for concurrent use.
type Server struct {
	*control.Panel
	services
	key           AccessKey
	plain, secure net.Listener
	caFile        string
	cancel        context.CancelFunc
	// work are the goroutines; cleanup what is left to do after the last has ended.
	work    sync.WaitGroup
	cleanup func()
	// inFlight is held by every request.
	inFlight sync.RWMutex
	stop     sync.Once
}

// Start runs a world until Stop, or until the context ends. Everything it began has ended when Stop returns.
func Start(ctx context.Context, w World, opts Options) (*Server, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{cancel: cancel, cleanup: func() {}}
	if err := s.start(ctx, w, opts); err != nil {
		s.Stop()
		return nil, fmt.Errorf("alisim: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, w World, opts Options) error {
	keeper, err := keeperFor(ctx, w, opts)
	if err != nil {
		return err
	}
	if s.services, err = furnish(w, opts.Clock, keeper); err != nil {
		return err
	}
	s.key = w.withDefaults().Credentials[0]
	s.Panel = control.New(s.cloud, s.compute, s.scaling, s.endpoint)
	dir := opts.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "alisim-"); err != nil {
			return err
		}
		s.cleanup = func() { os.RemoveAll(dir) }
	}
	cert, caFile, err := selfMade(dir, w.Region)
	if err != nil {
		return err
	}
	s.caFile = caFile
	if s.plain, err = net.Listen("tcp", cmp.Or(opts.Listen, "127.0.0.1:0")); err != nil {
		return err
	}
	if s.secure, err = net.Listen("tcp", cmp.Or(opts.ListenTLS, "127.0.0.1:0")); err != nil {
		return err
	}
	s.work.Go(func() { s.cloud.Run(ctx) })
	s.serve(ctx, cert)
	return nil
}

func keeperFor(ctx context.Context, w World, opts Options) (*nodes.Keeper, error) {
	cluster := opts.Nodes
	if cluster == nil {
		if opts.Kube == nil {
			return nil, nil
		}
		client, err := kubernetes.NewForConfig(nodes.Tune(opts.Kube))
		if err != nil {
			return nil, err
		}
		cluster = w.registrar(client, opts.Clock)
	}
	return nodes.NewKeeper(ctx, cluster, opts.Clock), nil
}

// serve begins to answer: plain, TLS, and TLS inside of tunnels. All three serve everything.
func (s *Server) serve(ctx context.Context, cert tls.Certificate) {
	tunnels := newTunnels(s.secure.Addr())
	server := &http.Server{
		Handler:           s.handler(tunnels),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // TLS handshakes of clients that do not know the CA
	}
	settings := &tls.Config{Certificates: []tls.Certificate{cert}}
	for _, listener := range []net.Listener{s.plain, tls.NewListener(s.secure, settings), tls.NewListener(tunnels, settings)} {
		s.work.Go(func() { server.Serve(listener) })
	}
	s.work.Go(func() {
		<-ctx.Done()
		server.Close()
	})
}

func (s *Server) handler(tunnels *tunnels) http.Handler {
	panel := s.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.inFlight.RLock()
		defer s.inFlight.RUnlock()
		proxied := r.URL.IsAbs() // "GET http://ess.aliyuncs.com/?Action=…" is what a proxy is sent
		switch {
		case r.Method == http.MethodConnect:
			tunnels.serveConnect(w, r)
		case !proxied && strings.HasPrefix(r.URL.Path, control.Path):
			panel.ServeHTTP(w, r)
		case !proxied && strings.HasPrefix(r.URL.Path, ecs.MetadataPath):
			s.compute.ServeMetadata(w, r)
		case r.URL.Path == "/" || r.URL.Path == "":
			s.endpoint.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// Stop ends the world and waits for all it began.
func (s *Server) Stop() {
	s.stop.Do(func() {
		s.cancel()
		for _, listener := range []net.Listener{s.plain, s.secure} {
			if listener != nil {
				listener.Close()
			}
		}
		s.work.Wait()
		if s.keeper != nil {
			s.keeper.Wait()
		}
		s.inFlight.Lock()
		defer s.inFlight.Unlock()
		s.cleanup()
	})
}

// Endpoint is the host:port of the plain HTTP endpoint, which serves ESS, ECS, VPC and STS, and is an HTTP proxy.
func (s *Server) Endpoint() string { return s.plain.Addr().String() }

// STSEndpoint is the host:port of the TLS endpoint, which serves the same. The SDK's AssumeRoleWithOIDC goes over TLS
// only.
func (s *Server) STSEndpoint() string { return s.secure.Addr().String() }

// CAFile is the PEM file of the authority that signed the TLS endpoint's certificate, for SSL_CERT_FILE.
func (s *Server) CAFile() string { return s.caFile }

// MetadataURL is what stands for http://100.100.100.200 on an instance, without a slash at the end: the metadata are
// below it at /latest/meta-data/.
func (s *Server) MetadataURL(instanceID string) string {
	return "http://" + s.Endpoint() + ecs.MetadataPath + instanceID
}

// AccessKey is the first key of the world.
func (s *Server) AccessKey() AccessKey { return s.key }

// Region of the world.
func (s *Server) Region() string { return s.cloud.Region }
