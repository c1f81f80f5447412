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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/rig"
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
	// afterglow is how long after all is over there is a look for purchases that come late.
	afterglow = 15 * time.Second
)

// reclaimRow is about so many notices in the same second. All times count from the moment the instance is locked.
type reclaimRow struct {
	Notices   int     `json:"notices"`
	MarkedPct float64 `json:"marked_pct"`
	// Until the taint is seen on the Node.
	MarkP50 float64 `json:"mark_p50_s"`
	MarkP99 float64 `json:"mark_p99_s"`
	// Until the cloud has accepted the purchase of a replacement; the first instances bought are taken to be for the
	// nodes whose notice came first.
	ReplaceP99 float64 `json:"replace_p99_s"`
	// Nodes on which no pod was left at the deadline.
	EmptiedPct float64 `json:"emptied_pct"`
	// Pods that were told to go, or vanished, before they had a deadline and a request for a checkpoint.
	UnwarnedPods int `json:"unwarned_pods"`
	// PurchasesPerNode counts instances that came, or are on their way, for each that was reclaimed. What the cloud rolled
	// back replaces nothing, and was not paid for.
	PurchasesPerNode float64 `json:"purchases_per_node"`
	Temper           string  `json:"temper"`
}

// reclaimDetail is what else there is to know of a row. A quantile that was not reached until the end is told as the
// time that there was.
type reclaimDetail struct {
	Notices   int     `json:"notices"`
	Nodes     int     `json:"nodes"`
	Pods      int     `json:"pods"`
	Marked    spread  `json:"mark_s"`
	Replaced  spread  `json:"replace_s"`
	Warned    spread  `json:"warn_s"`
	Emptied   spread  `json:"empty_s"`
	Purchases []order `json:"purchases"`
	// WholeAfter is when every job ran with all its workers on nodes that live; 0 if that was not seen. Jobs counts them by
	// how they were at the end.
	WholeAfter float64             `json:"whole_after_s"`
	Jobs       map[drill.State]int `json:"jobs"`
	// Unwarned names the pods that were not warned.
	Unwarned []string `json:"unwarned,omitempty"`
	// CPUSeconds is what the process took from the notices to the end, PeakBytes the most memory that it ever had.
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakBytes  int64   `json:"peak_bytes"`
	Loops      uint64  `json:"loops"`
	LoopMean   float64 `json:"loop_mean_s"`
}

// order is an accepted purchase.
type order struct {
	After     float64 `json:"after_s"`
	Instances int     `json:"instances"`
	Pool      string  `json:"pool"`
}

type spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func spreadOf(seconds []float64) spread {
	return spread{percentile(seconds, 50), percentile(seconds, 99), percentile(seconds, 100)}
}

// measureReclaim dooms nodes all at once. Every row has a cluster, a cloud and a process of its own.
func measureReclaim(ctx context.Context, s *session) (r report, err error) {
	counts := []int{1, 50, 200, 1000}
	switch {
	case s.notices != nil:
		counts = s.notices
	case s.quick:
		counts = counts[:3]
	}
	var rows []reclaimRow
	var details []reclaimDetail
	for _, notices := range counts {
		row, detail, err := reclaims(ctx, s, notices)
		if err != nil {
			return r, fmt.Errorf("%d notices: %w", notices, err)
		}
		rows, details = append(rows, row), append(details, detail)
		r.Aims = append(r.Aims, row.aims()...)
	}
	r.Rows, r.Details = rows, details
	return r, nil
}

func (r reclaimRow) aims() []aim {
	aims := []aim{
		atLeast(100, r.MarkedPct, "marked_pct at %d notices", r.Notices),
		atMost(10, r.ReplaceP99, "replace_p99_s at %d notices", r.Notices),
		atLeast(100, r.EmptiedPct, "emptied_pct at %d notices", r.Notices),
		atMost(0, float64(r.UnwarnedPods), "unwarned_pods at %d notices", r.Notices),
		atMost(1, r.PurchasesPerNode, "purchases_per_node at %d notices", r.Notices),
	}
	if r.Notices == 1000 {
		aims = append(aims, atMost(5, r.MarkP99, "mark_p99_s at %d notices", r.Notices))
	}
	return aims
}

// reclaims measures one row.
func reclaims(ctx context.Context, s *session, notices int) (row reclaimRow, detail reclaimDetail, err error) {
	d := &disaster{session: s, notices: notices, nodes: max(1, (notices+workersPerJob-1)/workersPerJob) * workersPerJob}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the witness
	if err := d.prepare(ctx); err != nil {
		return row, detail, err
	}
	defer d.rig.Stop()
	a, err := startAutoscaler(ctx, d.rig, s.flags()...)
	if err != nil {
		return row, detail, err
	}
	defer func() {
		err = errors.Join(err, a.Stop(), os.WriteFile(filepath.Join(s.out, fmt.Sprintf("reclaim-%d.log", notices)), []byte(a.Log(math.MaxInt)), 0o644))
	}()
	if err := awaitLoops(ctx, a, 2); err != nil {
		return row, detail, err
	}
	stopProfile := s.profile(ctx, a, fmt.Sprintf("reclaim-%d", notices), 5*time.Second)
	defer stopProfile()
	return d.strike(ctx, a)
}

// disaster is one reclaim, its victims and what is seen of it.
type disaster struct {
	*session
	notices, nodes int

	rig     *rig.Rig
	jobs    []drill.Job
	witness *drill.Witness
	// doomed is when each instance got its notice.
	doomed map[string]time.Time
	began  time.Time
}

// prepare fills a cluster with training jobs.
func (d *disaster) prepare(ctx context.Context) (err error) {
	began := time.Now()
	d.rig, err = rig.New(ctx, rig.Options{
		World: d.tempered(reclaimWorld(d.nodes)), Dir: filepath.Join(d.dir, fmt.Sprintf("reclaim-%d", d.notices)),
		NodeGracePeriod: 24 * time.Hour, Output: d.progress,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.rig.Stop()
		}
	}()
	if err := slowDown(d.rig); err != nil {
		return err
	}
	nodes, err := awaitGPUs(ctx, d.rig, d.nodes)
	if err != nil {
		return err
	}
	d.tell("reclaim: %d nodes are up after %.0f s", len(nodes), time.Since(began).Seconds())
	if d.witness, err = drill.Watch(ctx, d.rig.Cluster.AdminConfig()); err != nil {
		return err
	}
	d.jobs = trainingJobs(len(nodes))
	err = drill.Populate(ctx, d.rig, d.jobs, func(job, worker int) string {
		return nodes[job/workersPerJob*workersPerJob+worker].Name
	})
	if err != nil {
		return err
	}
	if err := d.awaitWhole(ctx, 5*time.Minute); err != nil {
		return err
	}
	d.tell("reclaim: %d jobs run on them after %.0f s", len(d.jobs), time.Since(began).Seconds())
	go d.witness.Answer(ctx, d.rig.Client, checkpointTime)
	return nil
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

// trainingJobs are as many as nodes: each eight jobs fill eight nodes, one worker of each job on each node.
func trainingJobs(n int) (all []drill.Job) {
	for i := range n {
		job := drill.Job{
			Name: fmt.Sprintf("job-%04d", i), Namespace: fmt.Sprintf("team-%d", i/guardedOneIn%namespaces),
			Kind: drill.Replicas, Workers: workersPerJob, Min: leastWorkers,
			Guarded: i%guardedOneIn == 0,
		}
		if i%rigidOneIn == 1 {
			job.Kind = drill.Indexed
		}
		all = append(all, job)
	}
	return all
}

// awaitGPUs returns the Nodes when there are as many and all their GPUs are there.
func awaitGPUs(ctx context.Context, r *rig.Rig, n int) (nodes []corev1.Node, err error) {
	err = wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		nodes = slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
			gpus := node.Status.Allocatable["nvidia.com/gpu"]
			return isUnready(node) || gpus.Value() != gpusPerNode
		})
		return len(nodes) == n, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %d nodes with GPUs, there are %d: %w", n, len(nodes), err)
	}
	return nodes, nil
}

// awaitWhole waits until every job runs with all its workers on nodes that live.
func (d *disaster) awaitWhole(ctx context.Context, timeout time.Duration) error {
	var lacking int
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		lacking = d.lacking()
		return lacking == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d jobs to be whole, %d are not: %w", len(d.jobs), lacking, err)
	}
	return nil
}

// lacking is how many jobs lack workers.
func (d *disaster) lacking() (jobs int) {
	running := d.witness.Running()
	for _, job := range d.jobs {
		if running[job.Name] < job.Workers {
			jobs++
		}
	}
	return jobs
}

// awaitLoops waits until the process has gone through so many main loops.
func awaitLoops(ctx context.Context, a *rig.Autoscaler, n uint64) error {
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		loops, err := mainLoops(ctx, a)
		return loops.count >= n, err
	})
}

// strike gives the notices and looks on until all jobs are whole again, or the instances are gone.
func (d *disaster) strike(ctx context.Context, a *rig.Autoscaler) (row reclaimRow, detail reclaimDetail, err error) {
	cpu, cpuErr := cpuSeconds(a.PID())
	loops, loopsErr := mainLoops(ctx, a)
	if err := errors.Join(cpuErr, loopsErr, d.doom()); err != nil {
		return row, detail, err
	}
	whole, err := d.lookOn(ctx, a)
	if err != nil {
		return row, detail, fmt.Errorf("%w\n%s", err, a.Log(20))
	}
	row, detail = d.figures()
	detail.WholeAfter = whole.Seconds()
	states, err := drill.States(ctx, d.rig, d.witness, d.jobs)
	if err != nil {
		return row, detail, err
	}
	detail.Jobs = map[drill.State]int{}
	for _, state := range states {
		detail.Jobs[state]++
	}
	after, cpuErr := cpuSeconds(a.PID())
	detail.CPUSeconds = after - cpu
	_, peak, peakErr := residentBytes(a.PID())
	detail.PeakBytes = peak
	last, loopsErr := mainLoops(ctx, a)
	if detail.Loops = last.count - loops.count; detail.Loops > 0 {
		detail.LoopMean = (last.seconds - loops.seconds) / float64(detail.Loops)
	}
	return row, detail, errors.Join(cpuErr, peakErr, loopsErr)
}

// doom gives the notices, as quickly as it can.
func (d *disaster) doom() error {
	d.began = time.Now()
	for i, instance := range d.rig.Cloud.Instances() {
		if i == d.notices {
			break
		}
		if err := d.rig.Cloud.Reclaim(instance.ID); err != nil {
			return err
		}
	}
	d.doomed = map[string]time.Time{}
	for _, instance := range d.rig.Cloud.Instances() {
		if instance.Recycling() {
			d.doomed[instance.ID] = instance.Deadline.Add(-noticePeriod)
		}
	}
	d.tell("reclaim: %d notices within %.3f s", len(d.doomed), time.Since(d.began).Seconds())
	return nil
}

// standing is how far the reclaim is.
type standing struct {
	// marked and busy are doomed nodes with the taint and with pods, lacking the jobs without all their workers.
	marked, busy, lacking int
}

func (d *disaster) standing() standing {
	p := standing{lacking: d.lacking()}
	nodes := d.witness.Nodes()
	for id := range d.doomed {
		if !nodes[id].Marked.IsZero() {
			p.marked++
		}
		if nodes[id].Busy > 0 {
			p.busy++
		}
	}
	return p
}

// lookOn returns when all is over, and how long after the notices the jobs were whole; 0 if they never were. It waits for
// jobs that come no nearer only for a minute.
func (d *disaster) lookOn(ctx context.Context, a *rig.Autoscaler) (whole time.Duration, err error) {
	const tellEvery, patience = 10 * time.Second, time.Minute
	var last standing
	changed, next := d.began, d.began.Add(tellEvery)
	for time.Since(d.began) < noticePeriod+30*time.Second {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return 0, err
		}
		select {
		case <-a.Done():
			return 0, errors.New("the autoscaler has ended")
		default:
		}
		now, p := time.Now(), d.standing()
		if p != last {
			last, changed = p, now
		}
		if now.After(next) {
			next = next.Add(tellEvery)
			d.tell("reclaim: after %.0f s %d of %d nodes are marked, %d have pods, %d were bought, %d of %d jobs lack workers",
				now.Sub(d.began).Seconds(), p.marked, len(d.doomed), p.busy, drill.Bought(d.purchases()), p.lacking, len(d.jobs))
		}
		if over := p.marked == len(d.doomed) && p.busy == 0; over && p.lacking == 0 {
			whole = now.Sub(d.began)
			break
		} else if over && now.Sub(changed) > patience {
			break
		}
	}
	return whole, sleep(ctx, afterglow)
}

func (d *disaster) purchases() []drill.Purchase { return drill.Purchases(d.rig, d.began) }

// figures are made of all that was seen.
func (d *disaster) figures() (reclaimRow, reclaimDetail) {
	now := time.Now()
	nodes, pods, purchases := d.witness.Nodes(), d.witness.Pods(), d.purchases()
	var notices []time.Time
	var marked, emptied []float64
	inTime := 0
	for id, notice := range d.doomed {
		node := nodes[id]
		notices = append(notices, notice)
		if !node.Marked.IsZero() {
			marked = append(marked, node.Marked.Sub(notice).Seconds())
		}
		emptied = append(emptied, seconds(notice, node.Emptied, now))
		if node.Busy == 0 && !node.Emptied.After(notice.Add(noticePeriod)) {
			inTime++
		}
	}
	replaced := replacements(notices, purchases, now)
	warned, unwarned := d.warnings(pods)
	marks := spreadOf(marked)
	row := reclaimRow{
		Notices: d.notices, MarkedPct: percent(len(marked), len(d.doomed)), MarkP50: marks.P50, MarkP99: marks.P99,
		ReplaceP99: percentile(replaced, 99), EmptiedPct: percent(inTime, len(d.doomed)), UnwarnedPods: len(unwarned),
		PurchasesPerNode: float64(drill.Bought(purchases)) / float64(len(d.doomed)), Temper: temperOf(d.rig.Cloud.Temper()),
	}
	detail := reclaimDetail{
		Notices: d.notices, Nodes: d.nodes, Pods: len(d.jobs) * workersPerJob,
		Marked: marks, Replaced: spreadOf(replaced), Warned: spreadOf(warned), Emptied: spreadOf(emptied), Unwarned: unwarned,
	}
	for _, p := range purchases {
		detail.Purchases = append(detail.Purchases, order{p.At.Sub(d.began).Seconds(), p.Instances, p.Pool})
	}
	return row, detail
}

// warnings returns how long after the notices each pod that had to go was warned, and which were not.
func (d *disaster) warnings(pods []drill.Pod) (warned []float64, unwarned []string) {
	for _, pod := range pods {
		if pod.Told.IsZero() || pod.Node == "" {
			continue
		}
		if pod.Warned.IsZero() {
			unwarned = append(unwarned, fmt.Sprintf("%s on %s, told to go after %.1f s, last seen with request %q",
				pod.NamespacedName, pod.Node, pod.Told.Sub(d.began).Seconds(), pod.Request))
		} else {
			warned = append(warned, pod.Warned.Sub(d.began).Seconds())
		}
	}
	return warned, unwarned
}

// replacements returns after how many seconds each notice was covered by a purchase, in their order.
func replacements(notices []time.Time, purchases []drill.Purchase, now time.Time) (waits []float64) {
	slices.SortFunc(notices, time.Time.Compare)
	for _, p := range purchases {
		for range min(p.Instances, len(notices)-len(waits)) {
			waits = append(waits, p.At.Sub(notices[len(waits)]).Seconds())
		}
	}
	for len(waits) < len(notices) {
		waits = append(waits, now.Sub(notices[len(waits)]).Seconds())
	}
	return waits
}

func seconds(from, to, now time.Time) float64 {
	if to.IsZero() {
		to = now
	}
	return to.Sub(from).Seconds()
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(of) }
