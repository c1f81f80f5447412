// Package explain is the command that asks the leader why nothing is bought for a pod.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ask"
)

const (
	// timeout bounds the whole command. The leader simulates the scheduler for every offering.
	timeout = time.Minute

	outputText, outputJSON = "text", "json"
)

// flags are those of the command.
type flags struct {
	ask.Flags
	output string
}

// NewCommand returns the command "explain".
func NewCommand() *cobra.Command {
	f := flags{output: outputText}
	pod := &cobra.Command{
		Use:   "pod NAMESPACE/NAME",
		Short: "Say what stands in the way of an instance for the pod, offering by offering, and what would mend it",
		Long: `Asks the leader why nothing is bought for a pending pod: what stands in the way of each offering, and the easiest step that would mend it.

From a laptop it asks through the API server's proxy of the Service, with a token of the ServiceAccount <name>-viewer that it has the API server
make. In a pod of the autoscaler (kubectl exec) it asks the process beside it, which has to lead.`,
		Example: `  gpu-spot-autoscaler explain pod default/train-0
  gpu-spot-autoscaler explain pod default/train-0 -o json
  kubectl -n kube-system exec deploy/gpu-spot-autoscaler -- /gpu-spot-autoscaler explain pod default/train-0`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%d arguments: name one pod, as NAMESPACE/NAME", len(args))
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			return run(ctx, f, args[0], command.OutOrStdout())
		},
	}
	// "explain" alone has the help of "explain pod". What is not "pod" is an error: cobra would print the help, and exit with 0.
	command := &cobra.Command{
		Use: "explain pod NAMESPACE/NAME", Short: "Say why nothing is bought for a pod", Long: pod.Long, Example: pod.Example,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("say what to explain: explain pod NAMESPACE/NAME")
			}
			return fmt.Errorf("%q: only pods are explained: explain pod NAMESPACE/NAME", args[0])
		},
	}
	f.AddTo(pod.Flags())
	pod.Flags().StringVarP(&f.output, "output", "o", outputText, "Form of the answer: text or json.")
	command.Flags().AddFlagSet(pod.Flags())
	command.AddCommand(pod)
	return command
}

func run(ctx context.Context, f flags, pod string, out io.Writer) error {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not the NAMESPACE/NAME of a pod", pod)
	}
	if f.output != outputText && f.output != outputJSON {
		return fmt.Errorf("-o %s: want %s or %s", f.output, outputText, outputJSON)
	}
	leader, err := f.Leader()
	if err != nil {
		return err
	}
	body, err := leader.Get(ctx, explain.Path, map[string]string{"namespace": namespace, "name": name})
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		_, err := out.Write(body)
		return err
	}
	var found explain.Explanation
	if err := json.Unmarshal(body, &found); err != nil {
		return fmt.Errorf("the leader answers what is no explanation; is it of another version? %w", err)
	}
	return found.WriteText(out)
}
