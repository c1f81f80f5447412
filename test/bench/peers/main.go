// Command peers measures this autoscaler beside what a user would take instead, Cluster Autoscaler with its in-tree alicloud provider,
// prints a table and writes it to out/bench/peers.json.
//
//	go run ./test/bench/peers [-run pending,stockout] [-out directory] [-in-tree binary]
//
// Both run as processes of their own, one after the other, with the same flags, each against a new control plane of the same version
// and a new simulated cloud with the same world. The worlds are kind to the in-tree provider: the lenient temper, and scaling groups of
// one instance type in one zone, since it knows no others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"gpu-spot-autoscaler/test/bench/report"
)

// measurement is rows that are measured together.
type measurement struct {
	name    string
	measure func(context.Context, *session, peer) ([]found, error)
}

// measurements are all there are, in the order in which they are made.
var measurements = []measurement{
	{"pending", measurePending},
	{"giveback", measureGiveBack},
	{"loop", measureLoop},
	{"reclaim", measureReclaim},
	{"stockout", measureStockout},
}

// session is what all measurements share.
type session struct {
	dir      string
	progress io.Writer
	// random is the same for both peers.
	random *rand.Rand
}

func (s *session) logf(format string, args ...any) { fmt.Fprintf(s.progress, format+"\n", args...) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	names := flag.String("run", "", "names of the measurements to make, separated by commas (default all of them)")
	out := flag.String("out", filepath.Join("out", "bench"), "directory for the file")
	inTree := flag.String("in-tree", filepath.Join("out", "bin", "cluster-autoscaler-alicloud"), "Cluster Autoscaler with its in-tree alicloud provider")
	flag.Parse()
	if err := run(ctx, *names, *out, *inTree); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// run makes the chosen measurements one after the other. One that fails does not keep the others from being made.
func run(ctx context.Context, names, out, inTree string) (err error) {
	chosen, err := report.Choose(measurements, names, func(m measurement) string { return m.name })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	began := time.Now()
	var rows []row
	var failures []error
	for _, m := range chosen {
		own, ownErr := measure(ctx, dir, m, ours)
		others, otherErr := measure(ctx, dir, m, stock(inTree))
		if err := errors.Join(ownErr, otherErr); err != nil {
			failures = append(failures, err)
			continue
		}
		rows = append(rows, compare(own, others)...)
	}
	r := report.Report{
		Title: "Beside Cluster Autoscaler with its in-tree alicloud provider", Rows: rows, Machine: report.ThisMachine(), Seconds: time.Since(began).Seconds(),
	}
	r.Print(os.Stdout)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return errors.Join(append(failures, r.Write(filepath.Join(out, "peers.json")))...)
}

func measure(ctx context.Context, dir string, m measurement, p peer) ([]found, error) {
	const seed = 1
	s := &session{dir: filepath.Join(dir, m.name+"-"+p.name), progress: os.Stderr, random: rand.New(rand.NewPCG(seed, seed))}
	s.logf("%s: %s", m.name, p.name)
	figures, err := m.measure(ctx, s, p)
	if err != nil {
		s.logf("%s: %s failed: %v", m.name, p.name, err)
		return nil, fmt.Errorf("%s of %s: %w", m.name, p.name, err)
	}
	for _, f := range figures {
		s.logf("%s: %s: %s: %v", m.name, p.name, f.what, f.figure)
	}
	return figures, nil
}
