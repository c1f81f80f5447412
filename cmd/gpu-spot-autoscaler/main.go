// Command gpu-spot-autoscaler keeps a Kubernetes cluster on Alibaba Cloud supplied with GPU spot nodes. It is Cluster
// Autoscaler with a cloud provider of its own.
package main

import (
	"os"
	"runtime/debug"

	_ "golang.org/x/crypto/x509roots/fallback"   // the image has no certificates of its own
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/commands"
)

// gcPercent is how much garbage there may be for what lives. Nearly all that lives are the pods of the cluster, and they
// live long: Go's default of 100 would double the memory to save a few hundredths of a core.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(commands.Execute(app.NewCommand(), os.Args[1:]))
}
