package alisim

import (
	"net"
	"net/http"
	"sync"
)

// tunnels lets clients that use the simulator as their proxy reach the TLS endpoint with CONNECT, whatever host they
// believe to talk to. It is a listener whose connections are those that CONNECT left behind.
type tunnels struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newTunnels(addr net.Addr) *tunnels {
	return &tunnels{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case conn := <-t.conns:
		return conn, nil
	case <-t.done:
		return nil, net.ErrClosed
	}
}

func (t *tunnels) Close() error {
	t.once.Do(func() { close(t.done) })
	return nil
}

func (t *tunnels) Addr() net.Addr { return t.addr }

func (t *tunnels) serveConnect(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// A client that talks before it has its answer breaks the protocol, and its bytes would be lost.
	if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil || buffered.Reader.Buffered() > 0 {
		conn.Close()
		return
	}
	select {
	case t.conns <- conn:
	case <-t.done:
		conn.Close()
	}
}
