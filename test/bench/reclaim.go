package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/drill"
)

const (
	// noticePeriod is that of Alibaba Cloud.
	noticePeriod = 5 * time.Minute
	// Each worker of a job is on another node, and each node full.
	workersPerJob, gpusPerNode = 8, 8
	// leastWorkers is what an elastic job can train with; every rigidOneIn-th job needs all its workers.
	leastWorkers, rigidOneIn = 2, 4
	// guardedOneIn is of how many jobs one has a PodDisruptionBudget.
	guardedOneIn = 10
	// checkpointTime is how long after it was asked to a job says that it has saved its work.
	checkpointTime = 5 * time.Second
	// namespaces is over how many the jobs are spread. Each eviction goes through the budgets of its namespace.
	namespaces = 10
	// nodesPerPool and maxPoolSize leave a pool room for the replacements of all: a scaling group holds 2,000.
	nodesPerPool, maxPoolSize = 500, 2000
	// wholeFactor is how much longer than the controllers of Kubernetes need anyway it may take until all jobs are whole.
	wholeFactor = 1.2
	// settleTime is how long after the end late purchases are still counted.
	settleTime = 15 * time.Second
	// startTime is how long jobs may take until they run, operatedStartTime the same where operators make their pods.
	startTime, operatedStartTime = 5 * time.Minute, 15 * time.Minute
)

// measureReclaim gives many instances their notice at once. Every row has a cluster, a cloud and a process of its own.
func measureReclaim(ctx context.Context, s *session) (report.Report, error) {
	counts := []int{1, 50, 200, 1000}
	if s.quick {
		counts = counts[:3]
	}
	return measureReclaims(ctx, s, counts, false)
}

// measureOperated is measureReclaim with half of the jobs those of real operators.
func measureOperated(ctx context.Context, s *session) (report.Report, error) {
	counts := []int{50, 200}
	if s.quick {
		counts = counts[:1]
	}
	return measureReclaims(ctx, s, counts, true)
}

func measureReclaims(ctx context.Context, s *session, counts []int, operated bool) (r report.Report, err error) {
	if s.notices != nil {
		counts = s.notices
	}
	var rows []reclaimRow
	var details []reclaimDetail
	for _, notices := range counts {
		row, detail, err := reclaims(ctx, s, notices, operated)
		if err != nil {
			return r, fmt.Errorf("%d notices: %w", notices, err)
		}
		rows, details = append(rows, row), append(details, detail)
		r.Aims = append(r.Aims, row.aims()...)
	}
	r.Rows, r.Details = rows, details
	return r, nil
}

func (r reclaimRow) aims() []report.Aim {
	aims := []report.Aim{
		report.AtLeast(100, r.MarkedPct, "marked_pct at %d notices", r.Notices),
		report.AtMost(5, r.ReplaceP99, "replace_p99_s at %d notices", r.Notices),
		report.AtLeast(100, r.EmptiedPct, "emptied_pct at %d notices", r.Notices),
		report.AtMost(0, float64(r.UnwarnedPods), "unwarned_pods at %d notices", r.Notices),
		report.AtMost(1, r.PurchasesPerNode, "purchases_per_node at %d notices", r.Notices),
	}
	if r.Notices == 1000 {
		aims = append(aims,
			report.AtMost(3, r.MarkP99, "mark_p99_s at %d notices", r.Notices),
			report.AtMost(120, r.EmptiedP50, "emptied_p50_s at %d notices", r.Notices),
			report.AtMost(200, r.EmptiedP99, "emptied_p99_s at %d notices", r.Notices),
			report.AtMost(wholeFactor*r.Controllers, r.Whole, "whole_s at %d notices", r.Notices),
			report.AtMost(0, float64(r.NotWhole), "jobs_not_whole at %d notices", r.Notices))
	}
	return aims
}

// reclaims measures one row.
func reclaims(ctx context.Context, s *session, notices int, operated bool) (row reclaimRow, detail reclaimDetail, err error) {
	r := &reclaimRun{session: s, operated: operated, notices: notices, nodes: max(1, (notices+workersPerJob-1)/workersPerJob) * workersPerJob}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the observer
	if err := r.prepare(ctx); err != nil {
		return row, detail, err
	}
	defer r.stop()
	a, err := startAutoscaler(ctx, r.rig, s.flags()...)
	if err != nil {
		return row, detail, err
	}
	defer func() {
		err = errors.Join(err, a.Stop(), os.WriteFile(filepath.Join(s.out, r.name()+".log"), []byte(a.Log(math.MaxInt)), 0o644))
	}()
	if err := a.AwaitLoops(ctx, 2, 2*time.Minute); err != nil {
		return row, detail, err
	}
	stopProfile := s.profile(ctx, a, r.name(), 5*time.Second)
	defer stopProfile()
	return r.measure(ctx, a)
}

// reclaimWorld has so many instances of eight GPUs, and more like them for sale.
func reclaimWorld(nodes int) alisim.World {
	sold := slices.DeleteFunc(soldTypes(), func(t market.Type) bool { return t.GPUs != gpusPerNode })
	world := newWorldOf(sold, (nodes+nodesPerPool-1)/nodesPerPool, 3, 2, maxPoolSize)
	for i := range world.Pools {
		world.Pools[i].Instances = min(nodesPerPool, nodes-i*nodesPerPool)
	}
	return world
}

// trainingJobs are as many as nodes: each eight jobs fill eight nodes, one worker of each job on each node. If they are operated, a
// quarter is queued in Kueue and a quarter are JobSets: their operators make their pods, and the scheduler places those where there is room.
// Each of these jobs fails for good with the first pod that counts as failed.
func trainingJobs(n int, operated bool) (all []drill.Job) {
	for i := range n {
		job := drill.Job{
			Name: fmt.Sprintf("job-%04d", i), Namespace: fmt.Sprintf("team-%d", i/guardedOneIn%namespaces),
			Kind: drill.Replicas, Workers: workersPerJob, Min: leastWorkers,
			Guarded: i%guardedOneIn == 0,
		}
		switch {
		case operated && i%rigidOneIn == 1:
			job.Kind, job.Namespace = drill.Queued, "" // the queue's
		case operated && i%rigidOneIn == 3:
			job.Kind = drill.JobSet
		case i%rigidOneIn == 1:
			job.Kind = drill.Indexed
		}
		all = append(all, job)
	}
	return all
}
