// Command controlplane is etcd, kube-apiserver, kube-scheduler and kube-controller-manager in one binary. Its first
// argument says which of them a process is: they may not share one, since their logging can be configured only once.
//
// The same source is built for each of several versions of Kubernetes, by a module file of its own: go.mod has the latest
// of them, kubernetes-<minor>.mod an earlier one (go build -modfile).
// It is started by the supervisor of gpu-spot-autoscaler/test/cluster, not by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

const etcd, apiServer, scheduler, controllerManager = "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"

// components maps the name of each to what runs in its process until it fails.
var components = map[string]func(ctx context.Context, args []string) error{
	etcd:              runEtcd,
	apiServer:         runAPIServer,
	scheduler:         runScheduler,
	controllerManager: runControllerManager,
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: controlplane COMPONENT [FLAG...]")
	}
	component, known := components[args[0]]
	if !known {
		return fmt.Errorf("unknown component %q", args[0])
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
