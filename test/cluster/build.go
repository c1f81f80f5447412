package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gpu-spot-autoscaler/test/nested"
)

// Versions are those of Kubernetes that a cluster can have: controlplane has a module file for each. The last is the
// default.
var Versions = []string{"1.33.13", "1.35.4", "1.36.1"}

// VersionVariable names the environment variable that chooses another default.
const VersionVariable = "KUBERNETES_VERSION"

// Version is that of Kubernetes which clusters have by default.
func Version() string {
	if version := os.Getenv(VersionVariable); version != "" {
		return version
	}
	return latest()
}

func latest() string { return Versions[len(Versions)-1] }

// Build builds what a cluster of the version of Kubernetes is started from, if need be, which a start does otherwise.
// Output is told if there is something to wait for.
func Build(ctx context.Context, version string, output io.Writer) error {
	_, err := buildControlPlane(ctx, version, output)
	if err != nil {
		return err
	}
	_, err = buildSupervisor(ctx, output)
	return err
}

func buildControlPlane(ctx context.Context, version string, output io.Writer) (binary string, err error) {
	if !slices.Contains(Versions, version) {
		return "", fmt.Errorf("there is no control plane of Kubernetes %q, only of %s", version, strings.Join(Versions, ", "))
	}
	// Kubernetes takes its version from the linker; without it the API server would call itself v0.0.0.
	number, linked := strings.Split(version, "."), "k8s.io/component-base/version"
	return nested.Command{
		Name:        "controlplane-" + version,
		Source:      "test/cluster/controlplane",
		ModuleFile:  moduleFile(version),
		LinkerFlags: fmt.Sprintf("-X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", linked, version, linked, number[0], linked, number[1]),
	}.Build(ctx, output)
}

func buildSupervisor(ctx context.Context, output io.Writer) (binary string, err error) {
	return nested.Command{Name: "supervisor", Source: "test/cluster/supervisor"}.Build(ctx, output)
}

// moduleFile is go.mod for the latest version, since a module must have one.
func moduleFile(version string) string {
	if version == latest() {
		return "go.mod"
	}
	return "kubernetes-" + version[:strings.LastIndex(version, ".")] + ".mod"
}
