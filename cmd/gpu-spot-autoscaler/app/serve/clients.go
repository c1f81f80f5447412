package serve

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// knownFor is how long after a client with a certificate has connected its address is known. It is longer than a connection may last.
	knownFor = 2 * connectionAge
	// introduction is how long a connection to the expander may wait until its address is known: Cluster Autoscaler connects to the
	// provider and to the expander at the same time.
	introduction, introductionPoll = handshakeTimeout / 2, 50 * time.Millisecond
)

// clients are the addresses from which clients with a certificate have connected to the provider. They are those that may call the expander,
// whose protocol has no certificate of the client: Cluster Autoscaler makes both connections from one pod. It is safe for concurrent use.
// Source: createGRPCClient in expander/grpcplugin/grpc_client.go.
type clients struct{ known *cache.Expiring }

func newClients() *clients { return &clients{known: cache.NewExpiring()} }

func (c *clients) note(address net.Addr) { c.known.Set(hostOf(address), true, knownFor) }

// await waits until the address is known. It returns an error if that takes too long.
func (c *clients) await(address net.Addr) error {
	host := hostOf(address)
	if wait.PollUntilContextTimeout(context.Background(), introductionPoll, introduction, true, func(context.Context) (bool, error) {
		_, known := c.known.Get(host)
		return known, nil
	}) == nil {
		return nil
	}
	return fmt.Errorf("no client with a certificate has connected to --%s from %s", flagAddress, host)
}

// hostOf returns the address without its port.
func hostOf(address net.Addr) string {
	if parsed, err := netip.ParseAddrPort(address.String()); err == nil {
		return parsed.Addr().Unmap().String()
	}
	return address.String()
}

// noted are credentials of a server that notes its clients.
type noted struct {
	credentials.TransportCredentials
	clients *clients
}

// ServerHandshake returns once the client has shown its certificate.
func (n noted) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := n.TransportCredentials.ServerHandshake(conn)
	if err == nil {
		n.clients.note(conn.RemoteAddr())
	}
	return secured, info, err
}

// knownOnly are credentials of a server that serves no others than the clients.
type knownOnly struct {
	credentials.TransportCredentials
	clients *clients
}

// ServerHandshake fails for other callers before anything is read from them.
func (k knownOnly) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := k.clients.await(conn.RemoteAddr()); err != nil {
		klog.Background().Info("Refused a connection to the expander", "err", err)
		return nil, nil, err
	}
	return k.TransportCredentials.ServerHandshake(conn)
}
