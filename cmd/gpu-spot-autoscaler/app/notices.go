package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim"
)

// serveNotices takes pushed reclaim notices until ctx ends, whether this process leads or not: a notice is written on its
// Node before it is answered, where the leader finds it. The certificate is read again when its files change.
func serveNotices(ctx context.Context, config *Config) error {
	if config.Notices.Address == "" {
		return nil
	}
	certificate, err := dynamiccertificates.NewDynamicServingContentFromFiles("notices", config.Notices.CertFile, config.Notices.KeyFile)
	if err != nil {
		return fmt.Errorf("--notice-tls-cert-file: %w", err)
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	serving := dynamiccertificates.NewDynamicServingCertificateController(base, nil, certificate, nil, nil)
	certificate.AddListener(serving)
	if err := serving.RunOnce(); err != nil {
		return fmt.Errorf("--notice-tls-cert-file: %w", err)
	}
	base.GetConfigForClient = serving.GetConfigForClient

	marks, _, err := reclaim.Clients(config.KubeConfig, config.ReclaimBudgets)
	if err != nil {
		return err
	}
	push, err := reclaim.NewPushHandler(reclaim.PushConfig{
		Client: marks, TokenFile: config.Notices.TokenFile, TokenInURL: config.Notices.TokenInURL, Region: config.Region,
		Signatures:   reclaim.Signatures(config.Notices.Signatures),
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
	routes.Handle("/v1/notices", push)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { certificate.Run(ctx, 1); return nil })
	group.Go(func() error { serving.Run(1, ctx.Done()); return nil })
	group.Go(func() error { return serve(ctx, listener, base, writeTimeout, routes) })
	return group.Wait()
}
