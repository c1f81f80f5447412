// Package kubeconfig finds the cluster of the subcommands, as kubectl does.
package kubeconfig

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags say which cluster a subcommand is about.
type Flags struct {
	// File and Context are those of kubectl. Without any, the ServiceAccount of the pod is used.
	File, Context string
}

// AddTo adds the flags to the set, with their defaults.
func (f *Flags) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.File, "kubeconfig", "", "Kubeconfig file. Default: as kubectl has it; in a pod, its ServiceAccount.")
	fs.StringVar(&f.Context, "context", "", "Context of the kubeconfig file.")
}

// Config returns how the cluster is reached.
func (f Flags) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.File
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no access to a cluster: %w; give --kubeconfig", err)
	}
	return config, nil
}
