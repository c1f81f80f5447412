package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cloudprovider/status/view"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// SecureConfig is what a Secure is made of. All fields are required.
type SecureConfig struct {
	Options options.SecureOptions
	// Host is the name in the certificate that is made at start if the options name no files.
	Host        string
	Access      *Access
	Status      *Status
	Costs       http.Handler
	Explain     http.Handler
	Diagnostics *Diagnostics
}

// Secure serves the status and the diagnostics on --secure-address, whether this process leads or not.
type Secure struct{ config SecureConfig }

// NewSecure returns a Secure.
func NewSecure(config SecureConfig) *Secure { return &Secure{config: config} }

// Serve serves until ctx ends. It does nothing if the options have no address.
func (s *Secure) Serve(ctx context.Context) error {
	if s.config.Options.Address == "" {
		return nil
	}
	routes := mux.NewPathRecorderMux("gpu-spot-autoscaler-secure")
	routes.Handle(status.Path, s.config.Status)
	routes.HandleFunc(view.Path, s.config.Status.ServePage)
	routes.Handle(CostsPath, s.config.Costs)
	routes.Handle(explain.Path, s.config.Explain)
	s.config.Diagnostics.install(routes)
	listener, err := net.Listen("tcp", s.config.Options.Address)
	if err != nil {
		return fmt.Errorf("--secure-address: %w", err)
	}
	klog.FromContext(ctx).Info("Serving over TLS", "address", listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	secured, err := s.certificate(ctx, group)
	if err != nil {
		return err
	}
	group.Go(func() error {
		return Serve(ctx, listener, secured, s.config.Diagnostics.WriteTimeout(), s.config.Access.Limit(routes))
	})
	return group.Wait()
}

func (s *Secure) certificate(ctx context.Context, group *errgroup.Group) (*tls.Config, error) {
	if s.config.Options.CertFile == "" {
		return selfSigned(s.config.Host)
	}
	secured, err := CertificateFromFiles(ctx, group, "secure", s.config.Options.CertFile, s.config.Options.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--secure-tls-cert-file: %w", err)
	}
	return secured, nil
}
