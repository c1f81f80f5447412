// Package releaseall is the command that takes off the cluster what the autoscaler has put on it, before it is uninstalled.
package releaseall

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

const (
	// defaultTimeout is less than the five minutes that helm waits for a hook by default.
	defaultTimeout = 4 * time.Minute
	// qps and burst are for all requests. A cluster of 5,000 Nodes of which each has to be patched takes a minute and a half.
	qps, burst = 100, 200

	outputText, outputJSON = "text", "json"
)

// flags are those of the command.
type flags struct {
	cluster                 kubeconfig.Flags
	namespace, name, output string
	dryRun, keepState       bool
	timeout                 time.Duration
}

// NewCommand returns the command "release-all".
func NewCommand() *cobra.Command {
	f := flags{}
	command := &cobra.Command{
		Use:   "release-all",
		Short: "Resume held jobs and unmark Nodes, before the autoscaler is uninstalled",
		Long: `Takes off the cluster what the autoscaler has put on it, so that it can be uninstalled: held jobs are resumed, the marks of Nodes and the
warnings of pods are removed, and so are the autoscaler's ConfigMaps and its lease.

First it scales the Deployment of the autoscaler to zero and takes the leader's lease, so that no autoscaler undoes any of it. Instances are
left as they are: the summary says how many there are and what they cost. The command may be interrupted and run again at any time.

Exit codes: 0 if all is released, 1 if something could not be, which the summary names, 2 if the command could not begin or was ended.`,
		Example: `  gpu-spot-autoscaler release-all --dry-run
  gpu-spot-autoscaler release-all
  gpu-spot-autoscaler release-all --autoscaler-name=my-release -o json`,
		SuggestFor: []string{"uninstall"},
		Args:       cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), f.timeout)
			defer cancel()
			return run(ctx, f, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	fs := command.Flags()
	f.cluster.AddTo(fs)
	fs.StringVar(&f.namespace, "autoscaler-namespace", "kube-system", "Namespace of the autoscaler.")
	fs.StringVar(&f.name, "autoscaler-name", options.Name, "Name of the autoscaler's Deployment and lease: that of the release.")
	fs.BoolVar(&f.dryRun, "dry-run", false, "Only say what would be done.")
	fs.BoolVar(&f.keepState, "keep-state", false, "Keep the ConfigMaps with the costs and with what is remembered of the market, to install the autoscaler again later.")
	fs.DurationVar(&f.timeout, "timeout", defaultTimeout, "How long all of it may take.")
	fs.StringVarP(&f.output, "output", "o", outputText, "Form of the summary: text or json.")
	return command
}

func run(ctx context.Context, f flags, out, progress io.Writer) error {
	if f.output != outputText && f.output != outputJSON {
		return fmt.Errorf("-o %s: want %s or %s", f.output, outputText, outputJSON)
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %v: want more than zero", f.timeout)
	}
	clients, err := f.clients()
	if err != nil {
		return err
	}
	r, err := newReleaser(ctx, f, clients, clock.RealClock{}, progress)
	if err != nil {
		return err
	}
	runErr := r.run(ctx)
	if err := r.report.write(out, f.output); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	switch {
	case runErr != nil:
		return runErr
	case r.report.failed():
		return exit.Faults
	}
	return nil
}

// clients are those of the cluster.
type clients struct {
	kube     kubernetes.Interface
	objects  dynamic.Interface
	metadata metadata.Interface
}

func (f flags) clients() (c clients, err error) {
	config, err := f.cluster.Config()
	if err != nil {
		return c, err
	}
	config.QPS, config.Burst = qps, burst
	rest.AddUserAgent(config, "release-all")
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return c, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return c, fmt.Errorf("make the client of jobs: %w", err)
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return c, fmt.Errorf("make the client of pods: %w", err)
	}
	return c, nil
}
