// Command bench measures what the autoscaler is meant to be good at, prints a table and writes one JSON file per
// measurement, {"rows": [...]} and what is worth knowing beside the rows, to out/bench.
//
//	go run ./test/bench [-run scaleup,loop] [-quick] [-notices 50,1000] [-temper lenient] [-profile] [-out directory]
//
// Every measurement uses real parts: the SDK speaks HTTP to a simulated cloud, and where the binary is measured it runs
// as a process of its own, built without the race detector, against a real control plane. All of that shares the
// machine's cores with what is measured, so the figures are pessimistic.
//
// An aim that is missed is told, and is no failure. A measurement that cannot be made is one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/test/alisim/temper"
	"gpu-spot-autoscaler/test/bench/report"
)

// measurement is one file of out/bench.
type measurement struct {
	// name is that of the file, without .json.
	name    string
	title   string
	measure func(context.Context, *session) (report.Report, error)
}

// measurements are all there are, in the order in which they are made: those first that are over soon.
var measurements = []measurement{
	{"refresh", "One refresh of the snapshot, 20 ms per cloud call", measureRefresh},
	{"startup", "From the start of the binary to ready", measureStartup},
	{"delete", "Giving nodes back, 20 ms per cloud call", measureDelete},
	{"loop", "The main loop over a big cluster", measureLoop},
	{"scaleup", "From the creation of a GPU pod to the accepted purchase", measureScaleup},
	{"gangs", "From the creation of gangs to the accepted purchases", measureGangs},
	{"gpunodes", "From a pending pod to a node with GPUs, with what things take at Alibaba Cloud", measureGPUNodes},
	{"reclaim", "From notices in the same second to empty nodes, 8 pods each", measureReclaim},
	{"operators", "The same with half of the jobs those of the real Kueue and JobSet", measureOperated},
}

// session is what all measurements of one run share.
type session struct {
	// quick asks for the smallest rows and few repetitions.
	quick bool
	// notices are the rows of the reclaims, in place of the usual.
	notices []int
	// temper is that of every world, in place of the simulator's default; "" for that.
	temper string
	// out is for what stays, dir for logs and data of the parts, gone at the end.
	out, dir string
	// profiles is where profiles go; empty for none.
	profiles string
	// progress is for the person who waits.
	progress io.Writer
}

func (s *session) logf(format string, args ...any) { fmt.Fprintf(s.progress, format+"\n", args...) }

// repetitions is n, or less where the user is in a hurry.
func (s *session) repetitions(n int) int {
	if s.quick {
		return min(n, 2)
	}
	return n
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if slices.Equal(os.Args[1:], cloudArguments) {
		exitOn(serveCloud(ctx, os.Stdin, os.Stdout))
		return
	}
	names := flag.String("run", "", "names of the measurements to make, separated by commas (default all of them)")
	quick := flag.Bool("quick", false, "make only the smallest rows, with few repetitions")
	var notices []int
	flag.Func("notices", "how many instances are reclaimed at once, separated by commas (default 1,50,200,1000, and 50,200 of jobs of real operators)", func(text string) (err error) {
		notices, err = numbers(text)
		return err
	})
	out := flag.String("out", filepath.Join("out", "bench"), "directory for the files")
	tempered := flag.String("temper", "", "how hard the simulated cloud is, strict or lenient (default: the simulator's)")
	profile := flag.Bool("profile", false, "also write CPU and heap profiles of the binary, which makes it slower")
	flag.Parse()
	if _, err := temper.Of(*tempered); err != nil {
		exitOn(fmt.Errorf("-temper: %w", err))
	}
	s := &session{quick: *quick, notices: notices, temper: *tempered, out: *out, progress: os.Stderr}
	if *profile {
		s.profiles = *out
	}
	exitOn(s.run(ctx, *names))
}

// numbers are positive, and separated by commas.
func numbers(text string) (all []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no positive number", field)
		}
		all = append(all, n)
	}
	return all, nil
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run makes the chosen measurements one after the other. One that fails does not keep the others from being made.
func (s *session) run(ctx context.Context, names string) (err error) {
	chosen, err := report.Choose(measurements, names, func(m measurement) string { return m.name })
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	closeLog, err := logTo(filepath.Join(s.out, "bench.log"))
	if err != nil {
		return err
	}
	defer closeLog()

	var failures []error
	for _, m := range chosen {
		began, stopProbe := time.Now(), report.WatchCore(ctx)
		r, err := m.measure(ctx, s)
		core := stopProbe()
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		r.Title, r.Quick, r.Seconds = m.title, s.quick, time.Since(began).Seconds()
		r.Machine, r.Core = report.ThisMachine(), core
		r.Print(os.Stdout)
		failures = append(failures, r.Write(filepath.Join(s.out, m.name+".json")))
	}
	return errors.Join(append(failures, ctx.Err())...)
}

// logTo sends what the parts in this process log to a file.
func logTo(path string) (closeLog func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL")); err != nil {
		return nil, err
	}
	klog.SetOutput(file)
	return func() { klog.Flush(); file.Close() }, nil
}
