// Package app is the autoscaler as a process: command line to configuration to running parts.
package app

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/autoscaler/cluster-autoscaler/version"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// NewCommand makes the command. It can be made and run once in a process: the flags of Cluster Autoscaler are global.
func NewCommand() *cobra.Command {
	command := &cobra.Command{
		Use: options.Name,
		Long: `Buys GPU spot instances of Alibaba Cloud for pending pods and gives them back when they are idle.

It is Cluster Autoscaler and takes all of its flags; those of its own come first below. It manages the ESS
scaling groups of one region that are tagged

  ` + api.TagEnabled + `=true
  ` + api.TagCluster + `<cluster-name>=owned

and those given by --nodes. Credentials come from --credentials-dir, else from the environment, in this order: an access key
(ALIBABA_CLOUD_ACCESS_KEY_ID, _SECRET), a service account's token (RRSA), the RAM role of the instance.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true, // cli.Run prints it
	}
	opts, err := options.New()
	if err != nil {
		command.RunE = func(*cobra.Command, []string) error { return err }
		return command
	}
	sections := opts.Sections()
	for _, section := range sections.FlagSets {
		command.Flags().AddFlagSet(section)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, sections, columns)
	command.RunE = func(command *cobra.Command, _ []string) error { return run(command.Context(), command.Flags(), opts) }
	return command
}

func run(ctx context.Context, flags *pflag.FlagSet, opts *options.Options) error {
	if err := opts.Complete(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	if err := utilerrors.NewAggregate(opts.Validate()); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "name", options.Name, "clusterAutoscaler", version.ClusterAutoscalerVersion)
	logSettings(flags, opts)

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := NewConfig(opts)
	if err != nil {
		return err
	}
	return Run(ctx, config)
}

// logSettings tells, in one line, all flags that are not at Cluster Autoscaler's default, given or changed by us; in
// more lines, at higher verbosity, the rest.
func logSettings(flags *pflag.FlagSet, opts *options.Options) {
	var settings []any
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || opts.Ours(f.Name) {
			settings = append(settings, f.Name, f.Value.String())
		}
	})
	klog.InfoS("Settings", settings...)
	cliflag.PrintFlags(flags)
}
