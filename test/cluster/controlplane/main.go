// Command controlplane is a whole Kubernetes control plane in one binary: etcd, kube-apiserver, kube-scheduler,
// kube-controller-manager and, in place of kubelets, kwok.
//
// Without a sub-command it prints how it is used; "supervise" starts one cluster by running this same binary once per
// component, since the Kubernetes components may not share a process (their logging can be configured only once).
// It is started by package gpu-spot-autoscaler/test/cluster, not by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"gpu-spot-autoscaler/test/cluster/controlplane/internal/kubelet"
	"gpu-spot-autoscaler/test/cluster/controlplane/internal/supervise"
)

// components maps the name of a child to what runs in its process until it fails.
var components = map[string]func(ctx context.Context, args []string) error{
	supervise.Etcd:              runEtcd,
	supervise.APIServer:         runAPIServer,
	supervise.Scheduler:         runScheduler,
	supervise.ControllerManager: runControllerManager,
	supervise.Kwok:              kubelet.Run,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: controlplane supervise --dir DIR [--temporary] [--node-grace-period DURATION]")
	}
	ctx := context.Background()
	if args[0] == "supervise" {
		return supervise.Run(ctx, args[1:], os.Stdin, os.Stdout)
	}
	component, known := components[args[0]]
	if !known {
		return fmt.Errorf("unknown sub-command %q", args[0])
	}
	go exitWhenClosed(os.Stdin)
	return component(ctx, args[1:])
}

// exitWhenClosed ends this process when the pipe from its parent closes, which it does however the parent ends.
// The process is gone at once: nothing in a test cluster is worth an orderly shutdown.
func exitWhenClosed(pipe io.Reader) {
	_, _ = io.Copy(io.Discard, pipe)
	os.Exit(0)
}
