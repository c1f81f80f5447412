package main

import (
	"context"
	"errors"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"

	"gpu-spot-autoscaler/test/cluster/controlplane/internal/supervise"
)

// peerSocket is where no second member will ever call. etcd wants the name to look like host:port.
const peerSocket = "etcd-peer:0"

// etcdQuota is the largest database etcd accepts, in bytes; enough for the 150,000 pods of the benchmarks.
const etcdQuota = 8 << 30

// runEtcd serves a single member that never waits for the disk: the data need not survive the process.
func runEtcd(ctx context.Context, _ []string) error {
	config := embed.NewConfig()
	config.Name = "etcd"
	config.Dir = "etcd"
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = etcdQuota
	config.LogLevel = "warn"
	config.EnableGRPCGateway = false
	// A lone member has nobody to wait for, so that short ticks only make it ready sooner.
	config.TickMs, config.ElectionMs = 10, 100
	client, peer := socketURL(supervise.EtcdSocket), socketURL(peerSocket)
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	select {
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return errors.New("etcd stopped")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func socketURL(path string) url.URL { return url.URL{Scheme: "unix", Host: path} }
