package serving

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"
)

func TestServeEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	asked := make(chan struct{})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	go func() { ended <- Serve(ctx, listener, nil, WriteTimeout, mux) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/quick")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	slow := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String() + "/slow")
		if err == nil {
			err = response.Body.Close()
		}
		slow <- err
	}()
	<-asked
	cancel()
	<-slow // ends with the rest, well or not
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("still serves")
	}
}

func TestRequestsUnderWayHaveSomeTimeToEnd(t *testing.T) {
	for name, test := range map[string]struct {
		takes, want time.Duration
		answer      string
	}{
		"an answer in time":     {shutdownGrace - time.Second, shutdownGrace - time.Second, "200 OK"},
		"one that takes longer": {time.Hour, shutdownGrace, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				listener := &closable{pipes: make(pipes, 1)}
				listener.pipes <- server
				ctx, cancel := context.WithCancel(t.Context())
				ended, answer := make(chan error, 1), make(chan string, 1)
				go func() {
					ended <- Serve(ctx, listener, nil, 0, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						select {
						case <-time.After(test.takes):
						case <-r.Context().Done():
						}
					}))
				}()
				go func() {
					_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: us\r\n\r\n")
					text, _ := io.ReadAll(client)
					answer <- string(text)
				}()
				synctest.Wait()
				began := time.Now()
				cancel()
				assert.NoError(t, <-ended)
				assert.InDelta(t, test.want.Seconds(), time.Since(began).Seconds(), 1) // Shutdown looks twice a second
				assert.Contains(t, <-answer, test.answer)
			})
		})
	}
}

func TestCallersThatDawdleAreCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		sent string
		want time.Duration
	}{
		"in the headers":                 {"POST / HTTP/1.1\r\n", readTimeout},
		"in the body":                    {"POST / HTTP/1.1\r\nHost: us\r\nContent-Length: 2\r\n\r\n{", readTimeout},
		"in sending the next request":    {"GET / HTTP/1.1\r\nHost: us\r\n\r\n", idleTimeout},
		"in sending anything whatsoever": {"", readTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				listener := make(pipes, 1)
				listener <- server
				go func() {
					_ = Serve(t.Context(), listener, nil, WriteTimeout, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
					}))
				}()
				began := time.Now()
				go func() { _, _ = io.WriteString(client, test.sent) }()
				_, _ = io.Copy(io.Discard, client)
				assert.Equal(t, test.want, time.Since(began).Round(time.Second))
				close(listener)
				synctest.Wait()
			})
		})
	}
}

func TestCallersThatDoNotReadTheAnswerAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		listener := make(pipes, 1)
		listener <- server
		ended := make(chan time.Time, 1)
		go func() {
			_ = Serve(t.Context(), listener, nil, WriteTimeout, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, 1<<20))
				ended <- time.Now()
			}))
		}()
		began := time.Now()
		_, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: us\r\n\r\n")
		require.NoError(t, err)
		assert.Equal(t, WriteTimeout, (<-ended).Sub(began))
		close(listener)
		synctest.Wait()
	})
}

func TestOneAddressCannotKeepMoreConnectionsThanItsShare(t *testing.T) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("ours.example", nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	for name, secured := range map[string]*tls.Config{"open": nil, "over TLS": {Certificates: []tls.Certificate{pair}}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, listener, secured, WriteTimeout, http.NotFoundHandler()) }()
		first, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		for range maxConnectionsOfCaller {
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
		}
		require.NoError(t, first.SetReadDeadline(time.Now().Add(readTimeout/2)))
		_, err = first.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF, name)
		cancel()
		assert.NoError(t, <-ended, name)
	}
}

// pipes is a listener to which somebody connects for each connection in it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// closable are pipes that the server may close.
type closable struct {
	pipes
	once sync.Once
}

func (c *closable) Close() error {
	c.once.Do(func() { close(c.pipes) })
	return nil
}
