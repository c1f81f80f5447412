// Command supervisor holds a test cluster together: it runs the components of a control plane, each in a process of its
// own, and plays the kubelets with kwok.
//
// "supervise" starts one cluster, and runs this same binary again for kwok. The rest of the components are of the binary
// named by --control-plane, so that kwok need not know the same Kubernetes as they do.
// It is started by package gpu-spot-autoscaler/test/cluster, not by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"gpu-spot-autoscaler/test/cluster/supervisor/internal/kubelet"
	"gpu-spot-autoscaler/test/cluster/supervisor/internal/supervise"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: supervisor supervise --dir DIR --control-plane BINARY --kubernetes-version VERSION [--temporary] [--node-grace-period DURATION]")
	}
	switch args[0] {
	case "supervise":
		return supervise.Run(ctx, args[1:], os.Stdin, os.Stdout)
	case supervise.Kwok:
		go exitWhenClosed(os.Stdin)
		return kubelet.Run(ctx, args[1:])
	default:
		return fmt.Errorf("unknown sub-command %q", args[0])
	}
}

// exitWhenClosed ends this process when the pipe from its parent closes, which it does however the parent ends.
func exitWhenClosed(pipe io.Reader) {
	_, _ = io.Copy(io.Discard, pipe)
	os.Exit(0)
}
