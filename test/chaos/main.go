// Command chaos has five of eight of a cluster's spot instances reclaimed in the same second, kills the leading autoscaler
// with SIGKILL twenty times while it deals with that, and says what came of it: out/chaos/reclaim.json.
//
//	go run ./test/chaos [-operators] [-nodes n] [-seed n] [-kills n] [-out directory]
//
// Two replicas stand for election. The moments of the kills are drawn from the seed, most of them early in the reclaim;
// every fourth kill waits for the next thing to happen, and hits then. The jobs are real Indexed Jobs, ReplicaSets that
// are declared elastic, and TrainingJobs under a stand-in for et-operator. All of them ask to be waited for and answer.
//
// With -operators the jobs are Jobs in a queue of the real Kueue and JobSets of the real JobSet controller, half and half, of
// which none can bear a pod that fails. They are finished at the end: each has to complete, with no restart counted and nothing of
// the autoscaler's left on it. The report is out/chaos/operators.json.
//
// It fails when a reclaiming node was not marked while it lived or was not empty at its deadline, when a job is neither whole
// nor suspended at the end, or when more instances were bought than lost.
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
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano())%1e6, "what the moments of the kills are drawn from")
	kills := flag.Int("kills", 20, "how many times the leader is killed")
	nodes := flag.Int("nodes", 80, "how many spot instances there are, a multiple of 40")
	operated := flag.Bool("operators", false, "whether the jobs are those of the real Kueue and JobSet")
	out := flag.String("out", filepath.Join("out", "chaos"), "directory for the report and the logs")
	flag.Parse()
	if err := run(ctx, os.Stdout, *out, *seed, *nodes, *kills, *operated); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// run makes the run and writes its report.
func run(ctx context.Context, output io.Writer, out string, seed uint64, nodes, kills int, operated bool) (err error) {
	if nodes <= 0 || nodes%(workers*trainingOneIn) != 0 {
		return fmt.Errorf("-nodes=%d is no multiple of %d", nodes, workers*trainingOneIn)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	klog.LogToStderr(false)
	log, err := os.Create(filepath.Join(out, "chaos.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	klog.SetOutput(log)

	fmt.Fprintf(output, "seed %d\n", seed)
	e, err := newExperiment(ctx, output, dir, out, seed, nodes, operated)
	if err != nil {
		return err
	}
	defer e.stop()
	verdict, err := e.run(ctx, kills)
	err = errors.Join(err, e.replicas.keepLogs(out))
	if err != nil {
		return err
	}
	report := "reclaim.json"
	if operated {
		report = "operators.json"
	}
	if err := verdict.write(filepath.Join(out, report)); err != nil {
		return err
	}
	verdict.print(output)
	return verdict.failure()
}
