// Command node-agent runs on every spot node. It asks the instance metadata whether the instance is about to be released,
// writes what it hears on its own Node, and answers the pods of its node.
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

// gcPercent keeps garbage from doubling a process that hardly produces any: it is on every spot node, and idle.
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
