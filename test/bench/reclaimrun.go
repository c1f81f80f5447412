package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/bench/population"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// reclaimRun is one reclaim of many nodes at once, and what is observed of it.
type reclaimRun struct {
	*session
	// operated has half of the jobs be those of real operators.
	operated       bool
	notices, nodes int

	rig *rig.Rig
	// operators are the real ones, none if the jobs are not operated.
	operators []*operators.Operator
	jobs      []drill.Job
	observer  *drill.Observer
	// noticed is when each instance got its notice.
	noticed map[string]time.Time
	began   time.Time
}

// name is that of what stays of the run.
func (r *reclaimRun) name() string {
	if r.operated {
		return fmt.Sprintf("operators-%d", r.notices)
	}
	return fmt.Sprintf("reclaim-%d", r.notices)
}

// prepare fills a cluster with training jobs.
func (r *reclaimRun) prepare(ctx context.Context) (err error) {
	began := time.Now()
	r.rig, err = rig.New(ctx, rig.Options{
		World: r.tempered(reclaimWorld(r.nodes)), Dir: filepath.Join(r.dir, r.name()),
		NodeGracePeriod: 24 * time.Hour, DefaultRates: true, Output: r.progress,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	if err := slowDown(r.rig); err != nil {
		return err
	}
	nodes, err := population.AwaitGPUs(ctx, r.rig, r.nodes, gpusPerNode)
	if err != nil {
		return err
	}
	r.logf("reclaim: %d nodes are up after %.0f s", len(nodes), time.Since(began).Seconds())
	if r.observer, err = drill.Watch(ctx, r.rig.Cluster.AdminConfig()); err != nil {
		return err
	}
	timeout := startTime
	if r.operated {
		timeout = operatedStartTime
		if err := r.startOperators(ctx); err != nil {
			return err
		}
	}
	r.jobs = trainingJobs(len(nodes), r.operated)
	err = drill.Populate(ctx, r.rig, r.jobs, func(job, worker int) string {
		return nodes[job/workersPerJob*workersPerJob+worker].Name
	})
	if err != nil {
		return err
	}
	if err := r.awaitWhole(ctx, timeout); err != nil {
		return err
	}
	r.logf("reclaim: %d jobs run on them after %.0f s", len(r.jobs), time.Since(began).Seconds())
	go r.observer.Answer(ctx, r.rig.Client, checkpointTime)
	return nil
}

// startOperators also makes the queue, which has room for all jobs.
func (r *reclaimRun) startOperators(ctx context.Context) error {
	for _, system := range []operators.System{operators.JobSet, operators.Kueue} {
		operator, err := operators.Start(ctx, system, operators.Options{Cluster: r.rig.Cluster, Dir: r.rig.Dir, Output: r.progress})
		if err != nil {
			return err
		}
		r.operators = append(r.operators, operator)
	}
	return drill.CreateQueue(ctx, r.rig, r.nodes*gpusPerNode)
}

// stop ends the cluster and what runs beside it.
func (r *reclaimRun) stop() {
	for _, operator := range r.operators {
		operator.Stop()
	}
	r.rig.Stop()
}

// awaitWhole waits until every job runs with all its workers on nodes that live.
func (r *reclaimRun) awaitWhole(ctx context.Context, timeout time.Duration) error {
	var lacking int
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		lacking = r.lacking()
		return lacking == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d jobs to be whole, %d are not: %w", len(r.jobs), lacking, err)
	}
	return nil
}

// lacking is how many jobs lack workers.
func (r *reclaimRun) lacking() (jobs int) {
	running := r.observer.Running()
	for _, job := range r.jobs {
		if running[job.Name] < job.Workers {
			jobs++
		}
	}
	return jobs
}

// measure gives the notices and observes until all jobs are whole again, or the instances are gone.
func (r *reclaimRun) measure(ctx context.Context, a *rig.Autoscaler) (row reclaimRow, detail reclaimDetail, err error) {
	cpu, cpuErr := report.CPUSeconds(a.PID())
	loops, loopsErr := a.Loops(ctx)
	requests, requestsErr := a.Requests(ctx)
	if err := errors.Join(cpuErr, loopsErr, requestsErr, r.giveNotices()); err != nil {
		return row, detail, err
	}
	whole, err := r.awaitEnd(ctx, a)
	if err != nil {
		return row, detail, fmt.Errorf("%w\n%s", err, a.Log(20))
	}
	lacking := r.lacking()
	row, detail = r.figures()
	all, requestsErr := a.Requests(ctx)
	for kind := range all {
		all[kind] -= requests[kind]
		row.RequestsPerPod += all[kind] / float64(len(r.noticed)*workersPerJob)
	}
	detail.Requests = all
	row.Whole, row.NotWhole, row.Controllers = whole.Seconds(), lacking, r.controllersNeed().Seconds()
	states, err := drill.States(ctx, r.rig, r.observer, r.jobs)
	if err != nil {
		return row, detail, err
	}
	detail.Jobs = map[drill.State]int{}
	for _, state := range states {
		detail.Jobs[state]++
	}
	after, cpuErr := report.CPUSeconds(a.PID())
	detail.CPUSeconds = after - cpu
	_, peak, peakErr := report.ResidentBytes(a.PID())
	detail.PeakBytes = peak
	last, loopsErr := a.Loops(ctx)
	if detail.Loops = last.Count - loops.Count; detail.Loops > 0 {
		detail.LoopMean = (last.Seconds - loops.Seconds) / float64(detail.Loops)
	}
	return row, detail, errors.Join(cpuErr, peakErr, loopsErr, requestsErr)
}

// giveNotices gives the notices, as quickly as it can.
func (r *reclaimRun) giveNotices() error {
	r.began = time.Now()
	for i, instance := range r.rig.Cloud.Instances() {
		if i == r.notices {
			break
		}
		if err := r.rig.Cloud.Reclaim(instance.ID); err != nil {
			return err
		}
	}
	r.noticed = map[string]time.Time{}
	for _, instance := range r.rig.Cloud.Instances() {
		if instance.Recycling() {
			r.noticed[instance.ID] = instance.Deadline.Add(-noticePeriod)
		}
	}
	r.logf("reclaim: %d notices within %.3f s", len(r.noticed), time.Since(r.began).Seconds())
	return nil
}

// runState is how far the reclaim is.
type runState struct {
	// marked and busy are reclaiming nodes with the taint and with pods, lacking the jobs without all their workers.
	marked, busy, lacking int
}

func (r *reclaimRun) state() runState {
	p := runState{lacking: r.lacking()}
	nodes := r.observer.Nodes()
	for id := range r.noticed {
		if !nodes[id].Marked.IsZero() {
			p.marked++
		}
		if nodes[id].Busy > 0 {
			p.busy++
		}
	}
	return p
}

// awaitEnd returns when all is over, and how long after the notices the jobs were whole; the time until the end if they never were. It
// waits for jobs that come no nearer only for a minute.
func (r *reclaimRun) awaitEnd(ctx context.Context, a *rig.Autoscaler) (whole time.Duration, err error) {
	const logEvery, patience, longest = 10 * time.Second, time.Minute, 5 * time.Minute
	var last runState
	changed, next := r.began, r.began.Add(logEvery)
	limit := max(noticePeriod, time.Duration(wholeFactor*float64(r.controllersNeed()))) + longest
	for time.Since(r.began) < limit {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return 0, err
		}
		select {
		case <-a.Done():
			return 0, errors.New("the autoscaler has ended")
		default:
		}
		now, p := time.Now(), r.state()
		if p != last {
			last, changed = p, now
		}
		if now.After(next) {
			next = next.Add(logEvery)
			r.logf("reclaim: after %.0f s %d of %d nodes are marked, %d have pods, %d were bought, %d of %d jobs lack workers",
				now.Sub(r.began).Seconds(), p.marked, len(r.noticed), p.busy, drill.Bought(r.purchases()), p.lacking, len(r.jobs))
		}
		if over := p.marked == len(r.noticed) && p.busy == 0; over && (p.lacking == 0 || now.Sub(changed) > patience) {
			break
		}
	}
	return time.Since(r.began), sleep(ctx, settleTime)
}

func (r *reclaimRun) purchases() []drill.Purchase { return drill.Purchases(r.rig, r.began) }
