package serve

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	expanderprotos "k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin/protos"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
	"gpu-spot-autoscaler/cmd/internal/callers"
)

const (
	// handshakeTimeout is how long a connection may take to show its certificate.
	handshakeTimeout = 10 * time.Second
	// connectionAge is after how long a client has to connect again, and to show its certificate again, and lastCalls how long calls may
	// take that are under way then.
	connectionAge, lastCalls = 10 * time.Minute, time.Minute
	// maxConnections and maxCalls are some more than the one client needs, which scales up several node groups at once.
	maxConnections, maxConnectionsOfCaller, maxCalls = 64, 16, 64
	// Each option for the expander has all its pods in full. The client takes answers of this size, too (gRPCMaxRecvMsgSize in
	// expander/grpcplugin/grpc_client.go). It has one call at a time, and a second connection while the first one ends.
	maxExpanderMessage, maxExpanderCalls, maxExpanderConnectionsOfCaller = 128 << 20, 1, 2
	// stopTimeout is how long calls under way may take when the process ends.
	stopTimeout = 5 * time.Second
)

// Serve serves the provider, and the expander if it has an address, until ctx ends. It returns once the calls under way have ended.
func Serve(ctx context.Context, o Options, provider protos.CloudProviderServer, expander expanderprotos.ExpanderServer) error {
	group, ctx := errgroup.WithContext(ctx)
	mutual, err := serving.MutualFromFiles(ctx, group, "serve", o.CertFile, o.KeyFile, o.ClientCAFile)
	if err != nil {
		return fmt.Errorf("--%s, --%s: %w", flagCertFile, flagClientCAFile, err)
	}
	known := newClients()
	server := newServer(noted{credentials.NewTLS(mutual), known}, maxCalls)
	protos.RegisterCloudProviderServer(server, provider)
	if err := listen(ctx, group, flagAddress, o.Address, maxConnectionsOfCaller, server); err != nil {
		return err
	}
	if o.ExpanderAddress == "" {
		return group.Wait()
	}
	secured, err := serving.CertificateFromFiles(ctx, group, "expander", o.CertFile, o.KeyFile)
	if err != nil {
		return fmt.Errorf("--%s: %w", flagCertFile, err)
	}
	server = newServer(knownOnly{credentials.NewTLS(secured), known}, maxExpanderCalls, grpc.MaxRecvMsgSize(maxExpanderMessage))
	expanderprotos.RegisterExpanderServer(server, expander)
	if err := listen(ctx, group, flagExpanderAddress, o.ExpanderAddress, maxExpanderConnectionsOfCaller, server); err != nil {
		return err
	}
	return group.Wait()
}

// newServer returns a server of so many calls at a time on each connection.
func newServer(secured credentials.TransportCredentials, calls uint32, further ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(further, grpc.Creds(secured), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(calls), grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: lastCalls,
		}))...)
}

// listen has the server serve at the address, in the group, until ctx ends. A caller may have so many connections.
func listen(ctx context.Context, group *errgroup.Group, flag, address string, ofCaller int, server *grpc.Server) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	klog.FromContext(ctx).Info("Serving gRPC", "flag", flag, "address", listener.Addr())
	bounded := callers.BoundConnections(listener, maxConnections, ofCaller)
	group.Go(func() error { return server.Serve(bounded) })
	group.Go(func() error {
		<-ctx.Done()
		force := time.AfterFunc(stopTimeout, server.Stop)
		defer force.Stop()
		server.GracefulStop()
		return nil
	})
	return nil
}
