// Package kubeconfig finds the cluster of the subcommands, as kubectl does.
package kubeconfig

import (
	"errors"
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
	files := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	config, err := files.ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case clientcmd.IsEmptyConfig(err): // whose text is about KUBERNETES_MASTER, which nobody sets
		return nil, errors.New("no access to a cluster: there is no kubeconfig, and this is no pod; give --kubeconfig or set KUBECONFIG")
	case f.lacksContext(files):
		return nil, fmt.Errorf("no access to a cluster: %w; kubectl config get-contexts lists what there is", err)
	default:
		return nil, fmt.Errorf("no access to a cluster: %w; give --kubeconfig", err)
	}
}

// lacksContext returns whether the files can be read, and have no context of that name.
func (f Flags) lacksContext(files clientcmd.ClientConfig) bool {
	raw, err := files.RawConfig()
	return err == nil && f.Context != "" && raw.Contexts[f.Context] == nil
}
