package app

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cloudprovider/reclaim/push"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
)

// serveNotices takes pushed reclaim notices until ctx ends, whether this process leads or not: a notice is written on its Node,
// where the leader finds it, before the sender gets an answer.
func serveNotices(ctx context.Context, config *Config) error {
	if config.Notices.Address == "" {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	secured, err := serving.CertificateFromFiles(ctx, group, "notices", config.Notices.CertFile, config.Notices.KeyFile)
	if err != nil {
		return fmt.Errorf("--notice-tls-cert-file: %w", err)
	}
	marks, _, err := reclaim.Clients(config.KubeConfig, config.ReclaimRateLimits)
	if err != nil {
		return err
	}
	handler, err := push.NewHandler(push.Config{
		Client: marks, TokenFile: config.Notices.TokenFile, TokenInURL: config.Notices.TokenInURL, Region: config.Region,
		Signatures:   push.Signatures(config.Notices.Signatures),
		NoticePeriod: config.ReclaimNoticePeriod, Clock: config.Clock,
	})
	if err != nil {
		return fmt.Errorf("--notice-token-file: %w", err)
	}
	listener, err := net.Listen("tcp", config.Notices.Address)
	if err != nil {
		return fmt.Errorf("--notice-address: %w", err)
	}
	klog.FromContext(ctx).Info("Taking notices", "address", listener.Addr())

	routes := http.NewServeMux()
	routes.Handle("/v1/notices", handler)
	group.Go(func() error { return serving.Serve(ctx, listener, secured, serving.WriteTimeout, routes) })
	return group.Wait()
}
