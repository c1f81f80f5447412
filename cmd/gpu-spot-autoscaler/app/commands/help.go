package commands

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/version"
)

// Flags that print something and end.
const (
	flagVersion = "version"
	flagHelpAll = "help-all"
)

// AddHelp has --help print our own flags, --help-all all of them, and --version what version prints. Of a subcommand --help prints its own
// flags.
func AddHelp(command *cobra.Command, opts *options.Options) {
	command.Version = version.Get().String()
	command.SetVersionTemplate("{{.Version}}")
	command.Flags().Bool(flagVersion, false, "Print what this binary was built from.")
	command.Flags().Bool(flagHelpAll, false, "Print all flags, those of Cluster Autoscaler too.")
	command.SetHelpFunc(func(called *cobra.Command, _ []string) {
		if called != command {
			printSubcommand(called, called.OutOrStdout())
			return
		}
		printHelp(command, command.OutOrStdout(), opts.OurSections())
		fmt.Fprintf(command.OutOrStdout(), "\nUse --%s for the other flags: those of Cluster Autoscaler, leader election, logs and feature gates.\n", flagHelpAll)
	})
	command.SetUsageFunc(func(called *cobra.Command) error {
		_, err := fmt.Fprintf(called.OutOrStderr(), "Usage:\n  %s\n\nUse --help for its flags.\n", called.UseLine())
		return err
	})
}

// HelpAll prints all flags if --help-all is given, and returns whether it is.
func HelpAll(command *cobra.Command, opts *options.Options) bool {
	all, err := command.Flags().GetBool(flagHelpAll)
	if err != nil || !all {
		return false
	}
	printHelp(command, command.OutOrStdout(), opts.Sections())
	return true
}

// NoArgs returns an error for an argument of the root, which is no subcommand, with those that may have been meant. cobra.NoArgs suggests none.
func NoArgs(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "--help lists the commands"
	if meant := command.SuggestionsFor(args[0]); len(meant) > 0 {
		hint = "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q: %s", args[0], hint)
}

// printHelp prints what the command is, its subcommands, and the flags.
func printHelp(command *cobra.Command, w io.Writer, sections cliflag.NamedFlagSets) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n  %s [command]\n\nCommands:\n\n", command.Long, command.UseLine(), command.Name())
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			fmt.Fprintf(w, "  %-12s %s\n", sub.Name(), sub.Short)
		}
	}
	columns, _, _ := term.TerminalSize(w)
	cliflag.PrintSections(w, sections, columns)
}

// printSubcommand prints what a subcommand is, and its own flags. It takes those of Cluster Autoscaler too, since they are of the process.
func printSubcommand(command *cobra.Command, w io.Writer) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", cmp.Or(command.Long, command.Short), command.UseLine())
	if command.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", command.Example)
	}
	columns, _, _ := term.TerminalSize(w)
	fmt.Fprintf(w, "\nFlags:\n\n%s", command.LocalFlags().FlagUsagesWrapped(columns))
}
