// Command cluster runs a test cluster until it is interrupted, for people who want to look at one with kubectl. With --build
// it only builds what a cluster is started from.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"gpu-spot-autoscaler/test/cluster"
)

func main() {
	dir := flag.String("dir", "", "directory for data, kubeconfig and logs, kept afterwards (default: a temporary one)")
	version := flag.String("kubernetes-version", cluster.Version(), "version of Kubernetes: one of "+strings.Join(cluster.Versions, ", "))
	build := flag.Bool("build", false, "build the cluster's binaries, and start none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *version, *build); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, version string, build bool) error {
	if build {
		return cluster.Build(ctx, version, os.Stderr)
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Version: version, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer c.Stop()
	fmt.Printf("export KUBECONFIG=%s\n", c.AdminKubeconfig())
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return c.Err()
	}
}
