package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/bench/population"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/rig"
)

// loopRow is over the main loops of a process, but for the first. Cluster Autoscaler measures them itself.
type loopRow struct {
	Nodes       int `json:"nodes"`
	PodsPerNode int `json:"pods_per_node"`
	// IdleP50 and IdleCalls are of the loops in which nothing is to be done but to look for nodes to give back.
	IdleP50   float64 `json:"idle_p50_s"`
	IdleCalls float64 `json:"idle_cloud_calls_per_minute"`
	P50       float64 `json:"p50_s"`
	Max       float64 `json:"max_s"`
	// RSSBytes is the most that the process ever had.
	RSSBytes int64  `json:"rss_bytes"`
	Temper   string `json:"temper"`
}

// loopDetail is about one phase.
type loopDetail struct {
	Nodes int    `json:"nodes"`
	Phase string `json:"phase"`
	// Seconds are of each loop.
	Seconds    []float64 `json:"seconds"`
	CPUSeconds float64   `json:"cpu_seconds"`
	// CloudCalls are those of the phase, per minute.
	CloudCalls float64 `json:"cloud_calls_per_minute"`
	// RSSBytes is at the end of the phase.
	RSSBytes int64 `json:"rss_bytes"`
}

const podsPerNode = 30

// measureLoop runs the binary over big clusters. A twentieth of the nodes train nothing, so there is always scale-down
// to think about. Then GPU pods come for which it buys, and then such as no offering has a node for, so that every loop
// goes through all offerings in vain.
func measureLoop(ctx context.Context, s *session) (r report.Report, err error) {
	sizes := []int{1000, 5000}
	if s.quick {
		sizes = []int{300}
	}
	bounds := map[int]struct{ idle, longest float64 }{1000: {.5, 2}, 5000: {2.5, 10}}
	var rows []loopRow
	var details []loopDetail
	for _, size := range sizes {
		found, phases, err := loops(ctx, s, size)
		if err != nil {
			return r, fmt.Errorf("%d nodes: %w", size, err)
		}
		rows, details = append(rows, found), append(details, phases...)
		if bound, ok := bounds[size]; ok {
			r.Aims = append(r.Aims, report.AtMost(bound.idle, found.IdleP50, "idle_p50_s at %d nodes", size), report.AtMost(bound.longest, found.Max, "max_s at %d nodes", size))
		}
		if size == 5000 {
			r.Aims = append(r.Aims, report.AtMost(.9*(1<<30), float64(found.RSSBytes), "rss_bytes at %d nodes", size))
		}
	}
	r.Rows, r.Details = rows, details
	return r, nil
}

// loops measures one size, on a cluster of its own.
func loops(ctx context.Context, s *session, size int) (row loopRow, phases []loopDetail, err error) {
	const perPool = 50
	world := newWorld(size/perPool, 3, 2, 2*perPool)
	for i := range world.Pools {
		world.Pools[i].Instances = perPool
	}
	bench, err := newRig(ctx, s, fmt.Sprintf("loop-%d", size), world)
	if err != nil {
		return row, nil, err
	}
	defer bench.Stop()
	if err := population.Fill(ctx, bench, podsPerNode, s.logf); err != nil {
		return row, nil, err
	}
	a, err := startAutoscaler(ctx, bench, s.flags()...)
	if err != nil {
		return row, nil, err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	stopProfile := s.profile(ctx, a, fmt.Sprintf("loop-%d", size), 10*time.Second)
	defer stopProfile()

	watch := &loopWatch{bench: bench, autoscaler: a, nodes: size}
	if phases, err = watch.phases(ctx, s); err != nil {
		return row, nil, fmt.Errorf("%w\n%s", err, a.Log(20))
	}
	var all []float64
	for _, phase := range phases[1:] {
		all = append(all, phase.Seconds...)
	}
	idle := phases[1]
	row = loopRow{
		Nodes: size, PodsPerNode: podsPerNode, IdleP50: report.Percentile(idle.Seconds, 50), IdleCalls: idle.CloudCalls,
		P50: report.Percentile(all, 50), Max: report.Percentile(all, 100), Temper: temperOf(bench.Cloud.Temper()),
	}
	_, row.RSSBytes, err = report.ResidentBytes(a.PID())
	return row, phases, err
}

// loopWatch times the loops of a process one by one.
type loopWatch struct {
	bench      *rig.Rig
	autoscaler *rig.Autoscaler
	nodes      int
	seen       rig.Loops
	cpu        float64
}

func (w *loopWatch) phases(ctx context.Context, s *session) (phases []loopDetail, err error) {
	for _, phase := range []struct {
		name string
		// pods is how many are created, each of so many GPUs.
		pods, gpus, loops int
	}{
		{"first", 0, 0, 1},
		{"idle", 0, 0, 6},
		{"buying", 50, 1, 4},
		{"buying in vain", 50, 64, 6},
	} {
		s.logf("loop: %s", phase.name)
		if err := submitFor(ctx, w.bench, phase.pods, phase.gpus); err != nil {
			return nil, err
		}
		detail, err := w.observe(ctx, phase.name, s.repetitions(phase.loops))
		if err != nil {
			return nil, err
		}
		phases = append(phases, detail)
	}
	return phases, nil
}

// submitFor creates pods that each ask for GPUs.
func submitFor(ctx context.Context, bench *rig.Rig, pods, gpus int) error {
	var creations errgroup.Group
	creations.SetLimit(submitters)
	for i := range pods {
		creations.Go(func() error {
			pod := rig.GPUPod(fmt.Sprintf("train-%d-%d", gpus, i), gpus)
			pod.Labels["app"] = "train-" + strconv.Itoa(gpus)
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			_, err := bench.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	return creations.Wait()
}

// observe waits for so many further loops.
func (w *loopWatch) observe(ctx context.Context, phase string, loops int) (detail loopDetail, err error) {
	const pollInterval = 200 * time.Millisecond // below the least time between two loops
	detail = loopDetail{Nodes: w.nodes, Phase: phase}
	began, calls := time.Now(), len(w.bench.Cloud.Requests())
	for len(detail.Seconds) < loops {
		if err := sleep(ctx, pollInterval); err != nil {
			return detail, err
		}
		select {
		case <-w.autoscaler.Done():
			return detail, errors.New("the autoscaler has ended")
		default:
		}
		now, err := w.autoscaler.Loops(ctx)
		if err != nil {
			return detail, err
		}
		for n := now.Count - w.seen.Count; n > 0; n-- { // more than one only if one was over at once
			detail.Seconds = append(detail.Seconds, (now.Seconds-w.seen.Seconds)/float64(now.Count-w.seen.Count))
		}
		w.seen = now
	}
	detail.CloudCalls = float64(len(w.bench.Cloud.Requests())-calls) / time.Since(began).Minutes()
	before := w.cpu
	if w.cpu, err = report.CPUSeconds(w.autoscaler.PID()); err != nil {
		return detail, err
	}
	detail.CPUSeconds = w.cpu - before
	detail.RSSBytes, _, err = report.ResidentBytes(w.autoscaler.PID())
	return detail, err
}
