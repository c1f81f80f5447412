package serving

import (
	"context"
	"crypto/tls"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
)

func baseTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

// CertificateFromFiles returns a TLS configuration with the certificate and the key of two PEM files. What it adds to the group
// reads the files again when they change, until ctx ends. The purpose names the certificate in logs.
func CertificateFromFiles(ctx context.Context, group *errgroup.Group, purpose, certFile, keyFile string) (*tls.Config, error) {
	return fromFiles(ctx, group, baseTLS(), nil, purpose, certFile, keyFile)
}

// MutualFromFiles is CertificateFromFiles for callers that have to show a certificate. It has to be signed by one of those in the third PEM
// file, which is read again, too.
func MutualFromFiles(ctx context.Context, group *errgroup.Group, purpose, certFile, keyFile, clientCAFile string) (*tls.Config, error) {
	clients, err := dynamiccertificates.NewDynamicCAContentFromFile(purpose, clientCAFile)
	if err != nil {
		return nil, err
	}
	base := baseTLS()
	base.ClientAuth = tls.RequireAndVerifyClientCert
	return fromFiles(ctx, group, base, clients, purpose, certFile, keyFile)
}

// fromFiles completes the TLS configuration. The clients may be nil.
func fromFiles(ctx context.Context, group *errgroup.Group, base *tls.Config, clients *dynamiccertificates.DynamicFileCAContent, purpose, certFile, keyFile string) (*tls.Config, error) {
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles(purpose, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	var clientCA dynamiccertificates.CAContentProvider // a nil pointer in it would not be nil
	if clients != nil {
		clientCA = clients
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(base.Clone(), clientCA, files, nil, nil)
	files.AddListener(controller)
	if clients != nil {
		clients.AddListener(controller)
		group.Go(func() error { clients.Run(ctx, 1); return nil })
	}
	if err := controller.RunOnce(); err != nil {
		return nil, err
	}
	base.GetConfigForClient = controller.GetConfigForClient
	group.Go(func() error { files.Run(ctx, 1); return nil })
	group.Go(func() error { controller.Run(1, ctx.Done()); return nil })
	return base, nil
}

// selfSigned returns a TLS configuration with a new certificate, which callers cannot verify.
func selfSigned(host string) (*tls.Config, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	base := baseTLS()
	base.Certificates = []tls.Certificate{pair}
	return base, nil
}
