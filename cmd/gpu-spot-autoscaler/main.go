// Command gpu-spot-autoscaler keeps a Kubernetes cluster on Alibaba Cloud supplied with GPU spot nodes. It is Cluster
// Autoscaler with a cloud provider of its own.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
