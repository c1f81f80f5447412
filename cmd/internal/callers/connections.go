package callers

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// Connections is a listener that keeps a bounded number of connections. Where there is one too many, whoever has the most
// loses one: golang.org/x/net/netutil.LimitListener would let one caller keep all others, and the kubelet's probes, from
// being accepted at all.
type Connections struct {
	net.Listener
	most, mostOfCaller int

	mu    sync.Mutex
	total int
	// open are those of each caller, the oldest first.
	open map[netip.Addr][]*connection
}

// connection is one that can be taken away.
type connection struct {
	net.Conn
	of     *Connections
	caller netip.Addr
	// busy says that a request is under way; guarded by of.mu.
	busy bool
}

// BoundConnections keeps so many connections of the listener at most, and so many of one address. TLS goes on top of it. A
// connection costs some 20 KiB, an idle one too.
func BoundConnections(listener net.Listener, most, mostOfCaller int) *Connections {
	return &Connections{Listener: listener, most: most, mostOfCaller: mostOfCaller, open: map[netip.Addr][]*connection{}}
}

// Accept returns the next connection, and closes another one where that is too many.
func (c *Connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	added, surplus := c.add(accepted)
	if surplus != nil {
		_ = surplus.Close() // its caller sees the end of it
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

// idlest is the oldest without a request under way or, where there is none, the oldest. The latest, which has had no time
// to send one, stays unless it is alone.
func idlest(of []*connection) *connection {
	older := of[:max(1, len(of)-1)]
	return older[max(0, slices.IndexFunc(older, func(one *connection) bool { return !one.busy }))]
}

// busiest is the caller with the most connections.
func (c *Connections) busiest() (busiest netip.Addr) {
	for caller, open := range c.open {
		if len(open) > len(c.open[busiest]) {
			busiest = caller
		}
	}
	return busiest
}

// Note is the server's ConnState.
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

// Close may be called again, as the server does with one that was taken away.
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
