package alisim

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// hostNames are those that the simulator's certificate answers to: loopback, and Alibaba's endpoints for clients that
// come through the proxy.
func hostNames(region string) []string {
	return []string{"localhost", "*.aliyuncs.com", "*." + region + ".aliyuncs.com"}
}

// selfMade returns a certificate signed by a new authority, whose own certificate it writes to dir as PEM. Neither
// key ever touches the disk. Certificates are valid for the real time, whatever the world's clock says.
func selfMade(dir, region string) (cert tls.Certificate, caFile string, err error) {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "alisim"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, "", err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &caKey.PublicKey, caKey)
	if err != nil {
		return cert, "", err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "alisim endpoint"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: hostNames(region), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, "", err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, caKey)
	if err != nil {
		return cert, "", err
	}
	var text bytes.Buffer
	if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: caDER}); err != nil {
		return cert, "", err
	}
	caFile = filepath.Join(dir, "alisim-ca.pem")
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, caFile, os.WriteFile(caFile, text.Bytes(), 0o644)
}
