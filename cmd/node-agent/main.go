// Command node-agent runs on every spot node. It reads from the instance metadata whether the instance is about to be released,
// writes the notice on its own Node, and answers the pods of its node.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"gpu-spot-autoscaler/cmd/node-agent/app"
)

// gcPercent keeps the heap small. The process runs on every spot node, is mostly idle, and allocates little.
const gcPercent = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := app.Run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		os.Exit(1)
	}
}
