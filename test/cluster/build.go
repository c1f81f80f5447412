package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"

	"gpu-spot-autoscaler/test/nested"
)

const kubeVersion = "1.33.13" // of k8s.io/kubernetes in the nested go.mod

// build makes sure that the control plane's binary is that of the sources and returns its path.
func build(ctx context.Context, output io.Writer) (binary string, err error) {
	major, minor, _ := strings.Cut(kubeVersion[:strings.LastIndex(kubeVersion, ".")], ".")
	// Kubernetes takes its version from the linker; without it the API server would call itself v0.0.0.
	version := "k8s.io/component-base/version"
	return nested.Command{
		Name:        "controlplane",
		Source:      "test/cluster/controlplane",
		LinkerFlags: fmt.Sprintf("-X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", version, kubeVersion, version, major, version, minor),
	}.Build(ctx, output)
}
