// Package app is the autoscaler as a process, in three steps: options, config, run.
//
//   - Package options reads the command line.
//   - [NewConfig] makes the clients that the options ask for.
//   - [Run] serves HTTP (package serving), takes part in the leader election, and autoscales while it leads: autoscale constructs
//     the parts and runs them until the lease is lost or the process is told to end.
//
// The parts are constructed in build (autoscaler.go), from the ones that need nothing to the ones that need others. newPodFlow and
// buildCore (core.go) put our processors into the extension points of Cluster Autoscaler's core.
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
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/commands"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/plan"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serve"
)

// NewCommand returns the command. It can be made and run once in a process, since the flags of Cluster Autoscaler are global.
func NewCommand() *cobra.Command {
	command := &cobra.Command{
		Use: options.Name,
		Long: `Buys GPU spot instances of Alibaba Cloud for pending pods and gives them back when they are idle.

It is Cluster Autoscaler and takes all of its flags; those of its own are below. It manages the ESS
scaling groups of one region that are tagged

  ` + api.TagEnabled + `=true
  ` + api.TagCluster + `<cluster-name>=owned

and those given by --nodes. Credentials come from --credentials-dir, else from the environment, in this order: an access key
(ALIBABA_CLOUD_ACCESS_KEY_ID, _SECRET), a service account's token (RRSA), the RAM role of the instance.`,
		Args: commands.NoArgs,
		// Two letters may be wrong, as where cobra itself suggests.
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		SilenceErrors:              true, // cli.Run prints it
	}
	opts, err := options.New()
	if err != nil {
		command.RunE = func(*cobra.Command, []string) error { return err }
		return command
	}
	for _, section := range opts.Sections().FlagSets {
		command.Flags().AddFlagSet(section)
	}
	commands.AddHelp(command, opts)
	commands.Add(command)
	command.AddCommand(plan.NewCommand(command, opts, foretell))
	command.AddCommand(serve.NewCommand(opts, func(ctx context.Context, flags *pflag.FlagSet, served *serve.Options) error {
		return run(ctx, flags, opts, served)
	}))
	command.RunE = func(command *cobra.Command, _ []string) error {
		if commands.HelpAll(command, opts) {
			return nil
		}
		return run(command.Context(), command.Flags(), opts, nil)
	}
	return command
}

// run runs the autoscaler, without a core of its own if it is served.
func run(ctx context.Context, flags *pflag.FlagSet, opts *options.Options, served *serve.Options) error {
	if err := opts.Complete(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	if err := utilerrors.NewAggregate(opts.Validate()); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting "+options.Name, "clusterAutoscaler", version.ClusterAutoscalerVersion)
	logSettings(ctx, flags, opts)

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := NewConfig(opts)
	if err != nil {
		return err
	}
	config.Serve = served
	return Run(ctx, config)
}

// logSettings logs in one line all flags that are not at Cluster Autoscaler's default, and the others at a higher verbosity.
func logSettings(ctx context.Context, flags *pflag.FlagSet, opts *options.Options) {
	var settings []any
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || opts.Ours(f.Name) {
			settings = append(settings, f.Name, f.Value.String())
		}
	})
	klog.FromContext(ctx).Info("Settings", settings...)
	cliflag.PrintFlags(flags)
}
