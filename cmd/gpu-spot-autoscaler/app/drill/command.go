// Package drill is the command that rehearses the reclaim of Nodes. It writes on the Nodes that there is to be a drill, watches what the
// leader and the jobs do, and prints it. The leader ends the drill, whatever becomes of the command.
package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
)

const outputText, outputJSON = "text", "json"

// flags are those of the command.
type flags struct {
	cluster kubeconfig.Flags
	nodes   []string
	notice  time.Duration
	until   string
	yes     bool
	output  string
}

// NewCommand returns the command "drill".
func NewCommand() *cobra.Command {
	f := flags{}
	command := &cobra.Command{
		Use:   "drill --node NAME",
		Short: "Rehearse the reclaim of a Node",
		Long: `Has the autoscaler treat a Node as if Alibaba Cloud had announced the release of its instance: it is tainted and cordoned, the jobs on it are
asked for a checkpoint, and the replacement is bought. The command prints what happens, with the time that is left at each step.

The instance stays, and the Node is restored: with --until=checkpoint as soon as the jobs have acknowledged that their work is saved, and nothing
is evicted; with --until=drain once the Node is without pods. It is given back when the time is over at the latest, and when the command is
interrupted. A notice that comes meanwhile for the Node takes the place of the drill.

It takes the right to patch Nodes, and to start drills.gpu-spot.autoscaling.

Exit codes: 0 if the drill came to its end, 1 if it did not in time, or something took its place, 2 if it could not begin or was interrupted.`,
		Example: `  gpu-spot-autoscaler drill --node=cn-hangzhou.192.168.0.12
  gpu-spot-autoscaler drill --node=cn-hangzhou.192.168.0.12 --until=drain --notice=3m
  gpu-spot-autoscaler drill --node=a,b --yes -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%q: name the Node with --node", args[0])
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, f, command.OutOrStdout())
		},
	}
	fs := command.Flags()
	f.cluster.AddTo(fs)
	fs.StringSliceVar(&f.nodes, "node", nil, "Node whose reclaim is rehearsed. More than one, separated by commas or given again, needs --yes.")
	fs.DurationVar(&f.notice, "notice", notice.DefaultPeriod, fmt.Sprintf("How long before the release the notice comes, from %v to %v. The drill is over after that.", notice.MinDrill, notice.MaxDrill))
	fs.StringVar(&f.until, "until", string(notice.UntilCheckpoint), "How far the drill goes: checkpoint, with which nothing is evicted, or drain.")
	fs.BoolVar(&f.yes, "yes", false, "Rehearse the reclaim of several Nodes at once.")
	fs.StringVarP(&f.output, "output", "o", outputText, "Form of the report: text, as it happens, or json, at the end.")
	return command
}

// check returns the Nodes, each once, and what makes no sense.
func (f flags) check() (nodes []string, err error) {
	for _, node := range f.nodes {
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	switch {
	case f.output != outputText && f.output != outputJSON:
		return nil, fmt.Errorf("-o %s: want %s or %s", f.output, outputText, outputJSON)
	case len(nodes) == 0:
		return nil, errors.New("--node: name the Node whose reclaim is to be rehearsed")
	case len(nodes) > 1 && !f.yes:
		return nil, fmt.Errorf("%d Nodes would be drilled at once; give --yes if that is meant", len(nodes))
	}
	if _, err := notice.NewDrill(notice.Until(f.until), time.Time{}, f.notice); err != nil {
		return nil, err
	}
	return nodes, nil
}

func run(ctx context.Context, f flags, out io.Writer) error {
	nodes, err := f.check()
	if err != nil {
		return err
	}
	config, err := f.cluster.Config()
	if err != nil {
		return err
	}
	rest.AddUserAgent(config, "drill")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return drill(ctx, f, nodes, client, clock.RealClock{}, out)
}

// drill does all of it.
func drill(ctx context.Context, f flags, nodes []string, client kubernetes.Interface, clk clock.WithTicker, out io.Writer) error {
	plan, err := notice.NewDrill(notice.Until(f.until), clk.Now(), f.notice)
	if err != nil {
		return err
	}
	d := &driller{client: client, clock: clk, plan: plan, nodes: nodes}
	d.timeline = &timeline{drill: plan, began: clk.Now(), now: clk.Now, live: out}
	if f.output == outputJSON {
		d.timeline.live = io.Discard
	}
	runErr := d.run(ctx)
	if runErr != nil && !d.started {
		return runErr
	}
	report := d.report()
	if f.output == outputJSON {
		err = report.writeJSON(out)
	} else {
		err = report.writeText(out)
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the report: %w", err)
	case runErr != nil:
		return runErr
	case !report.Completed:
		return exit.Faults
	}
	return nil
}
