package supervise

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// What the API server does with the socket and the certificates it is given, a small server does here.
func TestLentPortServesClientsOfTheAuthority(t *testing.T) {
	dir := t.TempDir()
	p, err := openPort()
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.listener.Close() })
	ca, err := newAuthority(dir)
	require.NoError(t, err)
	require.NoError(t, ca.serve(dir))
	kubeconfig, err := ca.kubeconfig(dir, "user", p.url(), "somebody", "a-group")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)

	for range 2 { // the socket survives its user
		p.refuse()
		p.refuse() // as often as one likes
		require.Error(t, get(t, config))

		listener, err := net.FileListener(p.lend())
		require.NoError(t, err)
		server := &http.Server{
			TLSConfig: &tls.Config{ClientAuth: tls.RequireAnyClientCert},
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				subject := r.TLS.PeerCertificates[0].Subject
				require.Equal(t, "somebody", subject.CommonName)
				require.Equal(t, []string{"a-group"}, subject.Organization)
			}),
		}
		served := make(chan error)
		go func() {
			served <- server.ServeTLS(listener, filepath.Join(dir, fileServingCert), filepath.Join(dir, fileServingKey))
		}()
		require.NoError(t, get(t, config))
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	}
}

// get makes a request on a connection of its own.
func get(t *testing.T, config *rest.Config) error {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Dial = new(net.Dialer).DialContext // not shared with earlier requests
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	response, err := client.Get(config.Host)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func TestBadRequestsAreRefused(t *testing.T) {
	s := &supervisor{children: map[string]*child{etcd: {name: etcd}}}
	tests := map[string]struct {
		request request
		want    string
	}{
		"unknown component":          {request{Verb: "pause", Component: "kubelet"}, "unknown component"},
		"unknown verb":               {request{Verb: "bless", Component: etcd}, "unknown verb"},
		"a signal to a dead process": {request{Verb: "pause", Component: etcd}, "not running"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, s.obey(test.request), test.want)
		})
	}
}
