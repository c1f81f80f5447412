package serving

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	certutil "k8s.io/client-go/util/cert"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

func TestTheCertificateIsThatOfTheFilesOrMadeAtStart(t *testing.T) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("ours.example", nil, nil)
	require.NoError(t, err)
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	require.NoError(t, os.WriteFile(certFile, certificate, 0o600))
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	for want, files := range map[string][2]string{"ours.example": {certFile, keyFile}, "gpu.kube-system.svc": {}} {
		secure := NewSecure(SecureConfig{Host: "gpu.kube-system.svc", Options: options.SecureOptions{CertFile: files[0], KeyFile: files[1]}})
		ctx, cancel := context.WithCancel(t.Context())
		group, ctx := errgroup.WithContext(ctx)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		secured, err := secure.certificate(ctx, group)
		require.NoError(t, err)
		group.Go(func() error { return Serve(ctx, listener, secured, WriteTimeout, http.NotFoundHandler()) })
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		assert.Contains(t, conn.ConnectionState().PeerCertificates[0].DNSNames, want)
		assert.NoError(t, conn.Close())
		cancel()
		assert.NoError(t, group.Wait())
	}
}
