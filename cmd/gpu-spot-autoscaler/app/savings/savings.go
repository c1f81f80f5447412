// Package savings is the command that says what was paid, and what on-demand instances would have cost in its place.
package savings

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ask"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
	"gpu-spot-autoscaler/pricing/ledger"
)

// timeout bounds the whole command.
const timeout = time.Minute

// Forms of the answer.
const (
	outputText = "text"
	outputJSON = "json"
	outputCSV  = "csv"
)

// flags are those of the command.
type flags struct {
	ask.Flags
	by, output string
}

// NewCommand returns the command "savings".
func NewCommand() *cobra.Command {
	f := flags{}
	command := &cobra.Command{
		Use:   "savings",
		Short: "Say what was paid, and how much less that is than on demand",
		Long: `Asks the leader for its cost ledger, and prints by pool, offering, namespace or job what was paid, what the same instances would have cost on
demand, and what was saved. What was paid for GPUs from a reclaim notice to the release of the instance is taken off as lost: it is the most that
reclaims have cost, as what a job has done until its last checkpoint is kept.`,
		Example: `  gpu-spot-autoscaler savings
  gpu-spot-autoscaler savings --by=job
  gpu-spot-autoscaler savings --by=namespace -o csv`,
		SuggestFor: []string{"costs", "cost"},
		Args:       cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			return run(ctx, f, command.OutOrStdout())
		},
	}
	f.AddTo(command.Flags())
	command.Flags().StringVar(&f.by, "by", byPool, "What a line is: "+strings.Join(kinds, ", ")+".")
	command.Flags().StringVarP(&f.output, "output", "o", outputText, "Form of the answer: text, json or csv.")
	return command
}

func run(ctx context.Context, f flags, out io.Writer) error {
	if !slices.Contains(kinds, f.by) {
		return fmt.Errorf("--by=%s: want %s", f.by, strings.Join(kinds, ", "))
	}
	write, ok := map[string]func(Savings, io.Writer) error{outputText: Savings.writeText, outputJSON: Savings.writeJSON, outputCSV: Savings.writeCSV}[f.output]
	if !ok {
		return fmt.Errorf("-o %s: want text, json or csv", f.output)
	}
	leader, err := f.Leader()
	if err != nil {
		return err
	}
	body, err := leader.Get(ctx, serving.CostsPath, nil)
	if err != nil {
		return err
	}
	var report ledger.Report
	if err := json.Unmarshal(body, &report); err != nil {
		return fmt.Errorf("the leader answers what is no cost ledger; is it of another version? %w", err)
	}
	return write(of(report, f.by), out)
}
