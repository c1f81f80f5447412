// Package lint checks what an operator writes, before it reaches the autoscaler: tags of scaling groups, ConfigMaps of pools, plans of
// Terraform and values of the chart. It needs no network. Tags are read by the parser that the autoscaler itself uses.
package lint

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
)

// Finding is one thing that is wrong. Its JSON is what -o json prints.
type Finding struct {
	File string `json:"file"`
	// Resource is what in the file it is about, such as a scaling group; empty where the file is about one thing only.
	Resource string `json:"resource,omitempty"`
	// Key is the tag, the annotation, the attribute or the path of the value.
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

func (f Finding) String() string {
	text := f.File + ": "
	if f.Resource != "" {
		text += f.Resource + ": "
	}
	if f.Key != "" {
		text += f.Key + ": "
	}
	return text + f.Message
}

// NewCommand returns the subcommand.
func NewCommand() *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check tags, pool ConfigMaps, jobs, Terraform plans and values of the chart, offline",
		Long: `Checks files before they are applied, without a cluster and without an account:

  - tags of a scaling group: a map, or what DescribeScalingGroups and DescribeScalingConfigurations answer, as YAML or JSON
  - ConfigMaps with settings of a pool
  - pods, jobs and whatever else has templates of pods: their annotations on spot and on-demand
  - a plan of Terraform: terraform show -json PLAN
  - values of the Helm chart

FILE may be - for the standard input. The exit code is 0 if nothing is wrong, 1 if something is, and 2 if a file cannot be read or is empty.`,
		Example: "  gpu-spot-autoscaler lint values.yaml pools/*.yaml\n  terraform show -json plan.out | gpu-spot-autoscaler lint -o json -",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--output=%s is neither text nor json", format)
			}
			findings := []Finding{}
			for _, file := range files {
				text, err := read(file, command.InOrStdin())
				if err != nil {
					return err
				}
				found, err := File(file, text, flagsOf(command))
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				findings = append(findings, found...)
			}
			return report(command.OutOrStdout(), format, findings)
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "text", "Format: text or json.")
	return command
}

func read(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// report prints the findings, and returns exit.Faults if there are any.
func report(w io.Writer, format string, findings []Finding) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(findings); err != nil {
			return err
		}
	} else {
		for _, finding := range findings {
			fmt.Fprintln(w, finding)
		}
	}
	if len(findings) > 0 {
		return exit.Faults
	}
	return nil
}

// flagsOf returns those of the autoscaler, whose subcommand this is, else nil.
func flagsOf(command *cobra.Command) *pflag.FlagSet {
	if !command.HasParent() {
		return nil
	}
	return command.Root().Flags()
}
