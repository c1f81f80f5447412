package main

import (
	"context"
	"errors"
	"net/url"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
)

// peerSocket is where no second member will ever call. etcd wants the name to look like host:port.
const peerSocket = "etcd-peer:0"

// quota is the largest database etcd accepts, in bytes; enough for the 150,000 pods of the benchmarks.
const quota = 8 << 30

// runEtcd serves a single member that never waits for the disk: the data need not survive the process.
func runEtcd(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet(etcd, pflag.ContinueOnError)
	socket := flags.String("socket", "", "Unix socket to serve on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Name = "etcd"
	config.Dir = "etcd"
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = quota
	config.LogLevel = "warn"
	config.EnableGRPCGateway = false
	// A lone member has nobody to wait for, so that short ticks only make it ready sooner.
	config.TickMs, config.ElectionMs = 10, 100
	client, peer := socketURL(*socket), socketURL(peerSocket)
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
