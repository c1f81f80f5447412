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
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// listenerFile is the descriptor at which the API server finds its listening socket.
const listenerFile = 3

// runAPIServer serves on a socket that the supervisor opened. So the port is known before the API server runs, cannot
// be lost to another process in between, and stays the same when the API server is restarted.
func runAPIServer(ctx context.Context, args []string) error {
	listener, err := net.FileListener(os.NewFile(listenerFile, "listener"))
	if err != nil {
		return fmt.Errorf("the supervisor passed no listening socket: %w", err)
	}
	server := options.NewServerRunOptions()
	flags := pflag.NewFlagSet(apiServer, pflag.ContinueOnError)
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
	return apiserverapp.Run(ctx, completed)
}

func runScheduler(ctx context.Context, args []string) error {
	return execute(ctx, schedulerapp.NewSchedulerCommand(), args)
}

func runControllerManager(ctx context.Context, args []string) error {
	return execute(ctx, controllermanagerapp.NewControllerManagerCommand(), args)
}

func execute(ctx context.Context, command *cobra.Command, args []string) error {
	command.SetArgs(args)
	return command.ExecuteContext(ctx)
}
