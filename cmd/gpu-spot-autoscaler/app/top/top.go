// Package top is the command that shows what the autoscaler does: offerings, pods that wait, reclaims, and what all of it costs.
package top

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cloudprovider/status/view"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ask"
)

// timeout bounds one request.
const timeout = 30 * time.Second

// Forms of the answer.
const (
	outputLive = "live"
	outputText = "text"
	outputJSON = "json"
	outputHTML = "html"
)

// Moves of the cursor, as ECMA-48 has them.
const (
	clearScreen  = "\x1b[H\x1b[2J"
	hideCursor   = "\x1b[?25l"
	appearCursor = "\x1b[?25h"
)

// flags are those of the command.
type flags struct {
	ask.Flags
	output   string
	interval time.Duration
}

// NewCommand returns the command "top".
func NewCommand() *cobra.Command {
	f := flags{}
	command := &cobra.Command{
		Use:   "top",
		Short: "Show offerings and prices, pods that wait, reclaims and costs",
		Long: `Asks the leader for its status, and shows it: what there is to buy and for how much, which pods wait and why, reclaims with the time that is
left, and what all of it costs. In a terminal it asks anew every --interval until it is interrupted; elsewhere it prints the status once.`,
		Example: `  gpu-spot-autoscaler top
  gpu-spot-autoscaler top -o text
  gpu-spot-autoscaler top -o html > status.html`,
		SuggestFor: []string{"status"},
		Args:       cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			out := command.OutOrStdout()
			if f.output == "" {
				f.output = outputText
				if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
					f.output = outputLive
				}
			}
			// An interrupted process would leave the terminal without a cursor.
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, f, clock.RealClock{}, out)
		},
	}
	f.AddTo(command.Flags())
	command.Flags().StringVarP(&f.output, "output", "o", "", "Form of the answer: live, text, json or html. Default: live in a terminal, text elsewhere.")
	command.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "How often -o live asks.")
	return command
}

func run(ctx context.Context, f flags, clk clock.WithTicker, out io.Writer) error {
	if f.interval <= 0 {
		return fmt.Errorf("--interval=%v: must be positive", f.interval)
	}
	if !slices.Contains([]string{outputLive, outputText, outputJSON, outputHTML}, f.output) {
		return fmt.Errorf("-o %s: want live, text, json or html", f.output)
	}
	leader, err := f.Leader()
	if err != nil {
		return err
	}
	switch f.output {
	case outputLive:
		return live(ctx, leader, f.interval, clk, out)
	case outputText:
		return writeText(ctx, leader, out)
	case outputJSON:
		return copyOf(ctx, leader, status.Path, out)
	default:
		return copyOf(ctx, leader, view.Path, out)
	}
}

// copyOf writes what the leader serves there.
func copyOf(ctx context.Context, leader ask.Leader, path string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := leader.Get(ctx, path, nil)
	if err != nil {
		return err
	}
	_, err = out.Write(body)
	return err
}

func writeText(ctx context.Context, leader ask.Leader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := leader.Get(ctx, status.Path, nil)
	if err != nil {
		return err
	}
	s := &status.Status{}
	if err := json.Unmarshal(body, s); err != nil {
		return fmt.Errorf("the leader answers what is no status; is it of another version? %w", err)
	}
	return view.WriteText(out, s)
}

// live shows the status until ctx ends, which is no error. What goes wrong is shown in its place, since it may pass: a leader changes.
func live(ctx context.Context, leader ask.Leader, interval time.Duration, clk clock.WithTicker, out io.Writer) error {
	ticker := clk.NewTicker(interval)
	defer ticker.Stop()
	defer io.WriteString(out, appearCursor)
	for {
		var screen bytes.Buffer
		screen.WriteString(hideCursor + clearScreen)
		if err := writeText(ctx, leader, &screen); ctx.Err() != nil {
			return nil
		} else if err != nil {
			fmt.Fprintf(&screen, "%v\n", err)
		}
		// In one piece, so that it does not flicker.
		if _, err := out.Write(screen.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
