package callers

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// Connections is a listener with a limit of connections. When a connection exceeds the limit, the caller with the most
// connections loses one. golang.org/x/net/netutil.LimitListener would accept no new connection instead, so that one caller could
// shut out all others, and the probes of the kubelet.
type Connections struct {
	net.Listener
	most, mostOfCaller int

	mu    sync.Mutex
	total int
	// open are the connections of each caller, the oldest first.
	open map[netip.Addr][]*connection
}

// connection is an accepted connection, which the listener may close.
type connection struct {
	net.Conn
	of     *Connections
	caller netip.Addr
	// busy is whether a request is in progress. It is guarded by of.mu.
	busy bool
}

// BoundConnections limits the connections of the listener, in all and for each address. TLS has to be on top of it. Every
// connection costs about 20 KiB, even an idle one.
func BoundConnections(listener net.Listener, most, mostOfCaller int) *Connections {
	return &Connections{Listener: listener, most: most, mostOfCaller: mostOfCaller, open: map[netip.Addr][]*connection{}}
}

// Accept returns the next connection, and closes another one if that exceeds a limit.
func (c *Connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	added, surplus := c.add(accepted)
	if surplus != nil {
		_ = surplus.Close() // its caller notices
	}
	return added, nil
}

func (c *Connections) add(accepted net.Conn) (added, surplus *connection) {
	added = &connection{Conn: accepted, of: c}
	if remote, err := netip.ParseAddrPort(accepted.RemoteAddr().String()); err == nil {
		added.caller = remote.Addr().Unmap()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[added.caller] = append(c.open[added.caller], added)
	c.total++
	switch {
	case len(c.open[added.caller]) > c.mostOfCaller:
		return added, idlest(c.open[added.caller])
	case c.total > c.most:
		return added, idlest(c.open[c.busiest()])
	}
	return added, nil
}

// idlest returns the oldest connection without a request in progress, or else the oldest one. It returns the latest, which has had
// no time to send a request, only if there is no other.
func idlest(of []*connection) *connection {
	older := of[:max(1, len(of)-1)]
	return older[max(0, slices.IndexFunc(older, func(one *connection) bool { return !one.busy }))]
}

// busiest returns the caller with the most connections.
func (c *Connections) busiest() (busiest netip.Addr) {
	for caller, open := range c.open {
		if len(open) > len(c.open[busiest]) {
			busiest = caller
		}
	}
	return busiest
}

// Note records the state of a connection. It is for the field ConnState of the server.
func (c *Connections) Note(conn net.Conn, state http.ConnState) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if one, ok := conn.(*connection); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.busy = state == http.StateActive
	}
}

// Close closes the connection. It may be called again, as the server does after the listener has closed the connection.
func (c *connection) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}

func (c *Connections) remove(gone *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.open[gone.caller]
	i := slices.Index(open, gone)
	if i < 0 {
		return
	}
	c.total--
	if open = slices.Delete(open, i, i+1); len(open) == 0 {
		delete(c.open, gone.caller)
	} else {
		c.open[gone.caller] = open
	}
}
