// Image builds the container images of the project as OCI archives for amd64 and arm64, without a container engine, a registry or a base
// image: a binary that links the certificates of public authorities, and the list of what it was built from. The same commit and the same
// version of Go give the same bytes.
//
//	go run . -root ../.. -out ../../out/image -version 0.2.0
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

// program is what an image runs.
type program struct {
	// name is that of the image and of the binary in it; pkg is its Go package, below the root of the repository.
	name, binary, pkg string
	ports             []int
	// starts is an argument with which it says something and ends well.
	starts      string
	description string
}

// programs are those that the chart runs.
var programs = []program{
	{"gpu-spot-autoscaler", "gpu-spot-autoscaler", "./cmd/gpu-spot-autoscaler", []int{8085, 8087, 8088, 8443, 8444}, "version", "Cluster Autoscaler for GPU spot instances of Alibaba Cloud"},
	{"gpu-spot-node-agent", "node-agent", "./cmd/node-agent", []int{8790}, "--help", "Hears of reclaims of spot instances of Alibaba Cloud on the node itself"},
}

// options are those of the command line.
type options struct {
	root, out, version string
	architectures      []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, out io.Writer) error {
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	o, architectures := options{}, ""
	fs.StringVar(&o.root, "root", "../..", "root of the repository")
	fs.StringVar(&o.out, "out", "../../out/image", "directory of the archives")
	fs.StringVar(&o.version, "version", "", "version of the images, such as 0.2.0")
	fs.StringVar(&architectures, "architectures", "amd64,arm64", "architectures of Linux, separated by commas")
	if err := fs.Parse(arguments); err != nil {
		return err
	}
	if o.version == "" {
		return fmt.Errorf("-version is required")
	}
	o.architectures = strings.Split(architectures, ",")
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	source, err := commitOf(ctx, o.root)
	if err != nil {
		return err
	}
	var digests strings.Builder
	for _, p := range programs {
		built, err := build(ctx, o, p, source)
		if err != nil {
			return fmt.Errorf("build the image %s: %w", p.name, err)
		}
		for _, line := range built.lines {
			fmt.Fprintln(out, line)
		}
		fmt.Fprintf(&digests, "%s %s\n", p.name, built.digest)
	}
	return os.WriteFile(filepath.Join(o.out, "digests"), []byte(digests.String()), 0o644)
}
