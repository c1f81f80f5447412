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

// Secure serves the status and the diagnostics on --secure-address, whether this process leads or not.
type Secure struct {
	Options options.SecureOptions
	// Host is the name in the certificate that is made at start if the options name no files.
	Host        string
	Access      *Access
	Status      *Status
	Costs       http.Handler
	Explain     http.Handler
	Diagnostics *Diagnostics
}

// Serve serves until ctx ends. It does nothing if the options have no address.
func (s *Secure) Serve(ctx context.Context) error {
	if s.Options.Address == "" {
		return nil
	}
	routes := mux.NewPathRecorderMux("gpu-spot-autoscaler-secure")
	routes.Handle(status.Path, s.Status)
	routes.HandleFunc(view.Path, s.Status.ServePage)
	routes.Handle(CostsPath, s.Costs)
	routes.Handle(explain.Path, s.Explain)
	s.Diagnostics.install(routes)
	listener, err := net.Listen("tcp", s.Options.Address)
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
		return Serve(ctx, listener, secured, s.Diagnostics.WriteTimeout(), s.Access.Limit(routes))
	})
	return group.Wait()
}

func (s *Secure) certificate(ctx context.Context, group *errgroup.Group) (*tls.Config, error) {
	if s.Options.CertFile == "" {
		return selfSigned(s.Host)
	}
	secured, err := CertificateFromFiles(ctx, group, "secure", s.Options.CertFile, s.Options.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--secure-tls-cert-file: %w", err)
	}
	return secured, nil
}
