// Package ask reaches the leader of a running autoscaler for the subcommands that ask it something.
package ask

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// secureAddress is the --secure-address of the chart, within the pod.
const secureAddress = "127.0.0.1:8444"

// Flags say which autoscaler is asked.
type Flags struct {
	Cluster kubeconfig.Flags
	// Namespace and Name are those of the release.
	Namespace, Name string
	// Address is where the autoscaler serves over TLS in its own pod.
	Address string
}

// AddTo adds the flags to the set, with their defaults.
func (f *Flags) AddTo(fs *pflag.FlagSet) {
	f.Cluster.AddTo(fs)
	fs.StringVar(&f.Namespace, "autoscaler-namespace", "kube-system", "Namespace of the autoscaler.")
	fs.StringVar(&f.Name, "autoscaler-name", options.Name, "Name of the autoscaler's Service and lease: that of the release.")
	fs.StringVar(&f.Address, "autoscaler-address", secureAddress, "Where the autoscaler serves over TLS (--secure-address), in its own pod.")
}

// Leader returns how the leader is reached: through the API server if there is a kubeconfig, and otherwise in this pod. A pod into which no token
// is mounted (automountServiceAccountToken: false) is like no pod.
func (f Flags) Leader() (Leader, error) {
	config, err := f.Cluster.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	if inPod, err := rest.InClusterConfig(); err == nil && inPod.Host == config.Host && config.BearerTokenFile != "" && config.BearerTokenFile == inPod.BearerTokenFile {
		return &beside{client, f, inPod.BearerTokenFile}, nil
	} else if err != nil && !errors.Is(err, rest.ErrNotInCluster) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the ServiceAccount of this pod: %w", err)
	}
	return &proxied{client: client, flags: f}, nil
}
