package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"gpu-spot-autoscaler/test/cluster/controlplane/internal/supervise"
)

// runAPIServer serves on a socket that the supervisor opened. So the port is known before the API server runs, cannot
// be lost to another process in between, and stays the same when the API server is restarted.
func runAPIServer(ctx context.Context, args []string) error {
	listener, err := net.FileListener(os.NewFile(supervise.FirstFile, "listener"))
	if err != nil {
		return fmt.Errorf("the supervisor passed no listening socket: %w", err)
	}
	server := options.NewServerRunOptions()
	flags := pflag.NewFlagSet(supervise.APIServer, pflag.ContinueOnError)
	for _, set := range server.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	server.SecureServing.Listener = listener
	server.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	if err := server.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(server.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	completed, err := server.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return utilerrors.NewAggregate(errs)
	}
	return apiserver.Run(ctx, completed)
}

func runScheduler(ctx context.Context, args []string) error {
	return execute(ctx, scheduler.NewSchedulerCommand(), args)
}

func runControllerManager(ctx context.Context, args []string) error {
	return execute(ctx, controllermanager.NewControllerManagerCommand(), args)
}

func execute(ctx context.Context, command *cobra.Command, args []string) error {
	command.SetArgs(args)
	return command.ExecuteContext(ctx)
}
