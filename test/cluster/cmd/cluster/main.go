// Command cluster runs a test cluster until it is interrupted, for people who want to look at one with kubectl.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"gpu-spot-autoscaler/test/cluster"
)

func main() {
	dir := flag.String("dir", "", "directory for data, kubeconfig and logs, kept afterwards (default: a temporary one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Output: os.Stderr})
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
