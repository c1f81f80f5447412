package operators

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"gpu-spot-autoscaler/test/nested"
)

// documentation is the module that requires what holds samples and is no operator that runs. Nothing is built of it.
var documentation = nested.Command{Name: "operators-samples", Source: "test/operators/samples"}

// Sample is a manifest that an operator's authors ship in a Go module of theirs, unchanged.
type Sample struct {
	command      nested.Command
	module, path string
}

var (
	// JobSetInOrder is the first JobSet in the module, whose config/samples has one without a spec.
	JobSetInOrder = JobSet.Sample("keps/104-StartupPolicy/README.md")
	// TrainerMultiNode is the first of examples/yaml, which came with the version in samples/go.mod. It is for TorchDistributed.
	TrainerMultiNode = Sample{documentation, Trainer.module, "examples/yaml/01-multi-node.yaml"}
	// TorchDistributed and DeepSpeedDistributed are runtimes that the Trainer is installed with.
	TorchDistributed     = Trainer.Sample("manifests/base/runtimes/torch_distributed.yaml")
	DeepSpeedDistributed = Trainer.Sample("manifests/base/runtimes/deepspeed_distributed.yaml")
)

// Sample returns the manifest at a path below the directory of the operator's module, or the first one in the document there.
func (s System) Sample(path string) Sample { return Sample{s.command, s.module, path} }

// Read returns the manifest.
func (s Sample) Read(ctx context.Context) ([]byte, error) {
	dir, err := s.command.ModuleDir(ctx, s.module)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, s.path))
	if err != nil || filepath.Ext(s.path) != ".md" {
		return text, err
	}
	_, text, found := bytes.Cut(text, []byte("\n```yaml\n"))
	manifest, _, closed := bytes.Cut(text, []byte("\n```\n"))
	if !found || !closed {
		return nil, fmt.Errorf("%s of %s has no manifest", s.path, s.module)
	}
	return manifest, nil
}
