package supervise

import (
	"crypto"
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
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files written into the cluster's directory.
const (
	fileCA             = "ca.crt"
	fileServingCert    = "apiserver.crt"
	fileServingKey     = "apiserver.key"
	fileServiceAccount = "service-account.key"
)

// validity outlasts any test cluster; the start lies in the past for clocks that are set back.
const validity = 7 * 24 * time.Hour

// authority is the certificate authority of one cluster, which signs the API server's certificate and those of its users.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// newAuthority makes a new authority and writes its certificate to dir.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("test-cluster-ca", nil)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key, pem: pemBlock("CERTIFICATE", der)}
	return a, os.WriteFile(filepath.Join(dir, fileCA), a.pem, 0o600)
}

// issue signs a certificate for a new key and returns both as PEM.
func (a *authority) issue(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyPEM(private)
	return pemBlock("CERTIFICATE", der), key, err
}

// serve writes the API server's certificate and key to dir.
func (a *authority) serve(dir string) error {
	template := certificate("kube-apiserver", nil)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	cert, key, err := a.issue(template)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, fileServingCert), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileServingKey), key, 0o600)
}

// kubeconfig writes <dir>/<name>.kubeconfig, with a client certificate for the user in the groups, and returns its path.
func (a *authority) kubeconfig(dir, name, url, user string, groups ...string) (string, error) {
	template := certificate(user, groups)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key, err := a.issue(template)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.pem}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(dir, name+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// writeServiceAccountKey writes the key that signs ServiceAccount tokens.
func writeServiceAccountKey(dir string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := keyPEM(private)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileServiceAccount), key, 0o600)
}

func certificate(name string, groups []string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
