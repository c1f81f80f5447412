package callers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialFrom connects from an address of the loopback network.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a request on the connection, and returns the status.
func exchange(conn net.Conn, path string) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\n\r\n", path); err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.Status, err
}

// server is one with room for so many connections. What asks for /held is not answered before the function is called.
func server(t *testing.T, most, mostOfCaller int) (address string, held *atomic.Int32, release func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bound := BoundConnections(listener, most, mostOfCaller)
	ctx, cancel := context.WithCancel(t.Context())
	held = new(atomic.Int32)
	server := &http.Server{ConnState: bound.Note, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held.Add(1)
			<-ctx.Done()
		}
	})}
	go server.Serve(bound)
	t.Cleanup(func() { cancel(); server.Close() })
	return listener.Addr().String(), held, cancel
}

func TestWhoHasTooManyConnectionsLosesTheOneThatWaitsLongest(t *testing.T) {
	address, held, release := server(t, 100, 3)
	working, workingStatus := dialFrom(t, "127.1.0.1", address), make(chan string, 1)
	go func() { status, err := exchange(working, "/held"); workingStatus <- fmt.Sprint(status, err) }()
	require.Eventually(t, func() bool { return held.Load() == 1 }, 10*time.Second, time.Millisecond)
	first, second := dialFrom(t, "127.1.0.1", address), dialFrom(t, "127.1.0.1", address)
	other := dialFrom(t, "127.1.0.2", address)
	latest := dialFrom(t, "127.1.0.1", address)

	_ = first.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := first.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	for _, conn := range []net.Conn{second, other, latest} {
		status, err := exchange(conn, "/")
		assert.NoError(t, err)
		assert.Equal(t, "200 OK", status)
	}
	release()
	assert.Equal(t, "200 OK<nil>", <-workingStatus, "what is under way is answered")
}

func TestRequestsOverTLSCountAsUnderWay(t *testing.T) {
	bound := BoundConnections(nil, 1, 1)
	_, conn := net.Pipe()
	defer conn.Close()
	one, _ := bound.add(conn)
	bound.Note(tls.Server(one, nil), http.StateActive)
	assert.True(t, one.busy)
}

func TestWhoHasTheMostConnectionsMakesRoomForOthers(t *testing.T) {
	address, _, _ := server(t, 5, 4)
	var many []net.Conn
	for range 4 {
		many = append(many, dialFrom(t, "127.1.0.1", address))
	}
	for i := range 3 {
		status, err := exchange(dialFrom(t, fmt.Sprintf("127.1.0.%d", 2+i), address), "/")
		assert.NoError(t, err)
		assert.Equal(t, "200 OK", status)
	}
	for i, conn := range many {
		status, err := exchange(conn, "/")
		assert.Equal(t, i >= 2, err == nil && status == "200 OK", "%d: %v", i, err)
	}
}
