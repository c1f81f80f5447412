// Command demo is the first five minutes with the autoscaler, on this machine: a real control plane, a simulated cloud
// whose prices and reclaims follow a recording, and the real binary between them. It submits three GPU jobs, reports what
// happens to them, and leaves report.json and report.html in out/demo.
//
//	make demo
//
// What it tells it has from the API server and from the cloud, not from the autoscaler's log. It fails where a part of
// the demonstration does not happen, and says which.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// longest is how long the demo may take in all.
const longest = 4*time.Minute + 45*time.Second

func main() {
	out := flag.String("out", "out/demo", "directory for report.json, report.html and logs")
	binary := flag.String("binary", "out/bin/gpu-spot-autoscaler", "the autoscaler; make builds it")
	flag.Parse()
	klog.SetLogger(klog.Logger{}) // what client libraries and the simulator say is no part of the demonstration

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cluster.Build(ctx, cluster.Version(), os.Stdout); err != nil { // its minutes are not the demonstration's
		exitOn(stop, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("the demo took more than %v", longest))
	defer cancel()
	if err := run(ctx, *out, *binary); err != nil {
		exitOn(stop, err)
	}
}

func exitOn(stop func(), err error) {
	fmt.Fprintln(os.Stderr, "\ndemo:", err)
	stop()
	os.Exit(1)
}

// run carries out the whole demonstration, and writes the report whether it ends well or not.
func run(ctx context.Context, out, binary string) (err error) {
	state := filepath.Join(out, "state")
	if err := os.RemoveAll(state); err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	t := newTerminal(os.Stdout)
	t.heading("A control plane, a cloud and the autoscaler start")
	r, err := start(ctx, state, binary, t)
	if err != nil {
		return err
	}
	defer r.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the watches end before what they watch
	s, err := newDemo(ctx, r, t)
	if err != nil {
		return err
	}
	err = s.run(ctx)
	t.clear()
	report := newReport(s.timeline, s.ledger, r.Cloud.RequestCounts(), err)
	if written := report.write(out); written != nil {
		return errors.Join(err, written)
	}
	t.conclude(report, out)
	return err
}

// start starts what the demonstration needs but the autoscaler.
func start(ctx context.Context, state, binary string, t *terminal) (*rig.Rig, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("no autoscaler, make build makes it: %w", err)
	}
	r, err := rig.New(ctx, rig.Options{World: newWorld(), ClusterName: clusterName, Binary: binary, Dir: state})
	if err != nil {
		return nil, err
	}
	t.printf("kube-apiserver, scheduler, controller-manager and etcd are up after %.1f s", r.Cluster.StartTime().Seconds())
	t.printf("a simulated %s sells %d offerings: 3 GPU types in 3 zones, one market hour each %.0f s", region, len(recorded), r.Cloud.MarketHour().Seconds())
	node := systemNode(cluster.NewFakeNode(region+".10.0.0.1", corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("64"),
	}))
	if err := r.Cluster.CreateNodes(ctx, []*corev1.Node{node}); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

func newDemo(ctx context.Context, r *rig.Rig, t *terminal) (*demo, error) {
	o, err := newObserver(ctx, r.Client, r.Cloud, offerings())
	if err != nil {
		return nil, err
	}
	return &demo{
		rig: r, observer: o, terminal: t,
		timeline: newTimeline(jobs(), vswitchZones(r.World)),
		ledger:   &ledger{began: time.Now(), speed: speed, gpus: gpusOf()},
	}, nil
}

// run runs the autoscaler and the stand-ins beside the steps of the demonstration, and fails with the first of them that ends.
func (s *demo) run(ctx context.Context) (err error) {
	operator, err := standin.NewETOperator(s.rig.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	if err := operator.Install(ctx, s.rig.Cluster); err != nil {
		return err
	}
	autoscaler, err := s.rig.StartAutoscaler(ctx, nil, flags()...)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := autoscaler.Stop(); err == nil && stopped != nil {
			err = fmt.Errorf("the autoscaler: %w\n%s", stopped, autoscaler.Log(20))
		}
	}()
	s.terminal.printf("gpu-spot-autoscaler is process %d, with the rights of the shipped ServiceAccount", autoscaler.PID())

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operator.Run(ctx) })
	training := &trainer{client: s.rig.Client, asked: map[string]time.Time{}}
	group.Go(func() error { return training.run(ctx) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-autoscaler.Done():
			return fmt.Errorf("the autoscaler ended by itself:\n%s", autoscaler.Log(20))
		case <-s.rig.Cluster.Done():
			return cmp.Or(s.rig.Cluster.Err(), errors.New("the control plane ended"))
		}
	})
	group.Go(func() error {
		defer cancel()
		return s.follow(ctx)
	})
	return group.Wait()
}

// flags are those of a user, but for shorter waits.
func flags() []string {
	return []string{
		"--leader-elect=true", "--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s",
		"--reclaim-notice-period=" + noticePeriod.String(), "--reclaim-poll-interval=1s",
		"--price-refresh-interval=5s",
	}
}
