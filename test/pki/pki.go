// Package pki issues certificates for tests.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Authority is one that signs certificates.
type Authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority for the length of the test.
func New(t *testing.T, name string) *Authority {
	t.Helper()
	key := newKey(t)
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{t: t, cert: cert, key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// WriteCA writes the authority's own certificate into the directory, and returns the file.
func (a *Authority) WriteCA(dir string) string {
	a.t.Helper()
	return a.write(dir, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: a.cert.Raw}))
}

// Write writes a certificate for servers and clients at 127.0.0.1, and its key, into the directory, and returns the files.
func (a *Authority) Write(dir, name string) (certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile = a.write(dir, "tls.crt", pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: signed}))
	return certFile, a.write(dir, "tls.key", encoded)
}

func (a *Authority) write(dir, name string, content []byte) string {
	a.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}
