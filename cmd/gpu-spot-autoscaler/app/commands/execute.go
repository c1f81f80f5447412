// Package commands has the subcommands of the binary, and its --help.
package commands

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/doctor"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/drill"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/explain"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/lint"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/releaseall"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/savings"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/top"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/version"
)

// Add adds the subcommands.
func Add(command *cobra.Command) {
	command.CompletionOptions.HiddenDefaultCmd = true
	command.AddCommand(doctor.NewCommand(), drill.NewCommand(), explain.NewCommand(), lint.NewCommand(), releaseall.NewCommand(), savings.NewCommand(),
		top.NewCommand(), version.NewCommand())
}

// Execute runs the command with the arguments, and returns the exit code of the process. The autoscaler logs its errors; subcommands
// print them, and their exit codes are those of package exit.
func Execute(command *cobra.Command, args []string) int {
	command.SetArgs(args)
	called, _, err := command.Find(args)
	if err != nil || called == command {
		return cli.Run(command)
	}
	err = cli.RunNoErrOutput(command)
	var code exit.Code
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(command.ErrOrStderr(), "Error: %v\n", err)
	return int(exit.CannotRun)
}
