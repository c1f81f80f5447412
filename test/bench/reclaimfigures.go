package main

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/drill"
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
	// Nodes on which no pod was left at the deadline, and until there was none.
	EmptiedPct float64 `json:"emptied_pct"`
	EmptiedP50 float64 `json:"emptied_p50_s"`
	EmptiedP99 float64 `json:"emptied_p99_s"`
	// Unguarded counts the nodes without a pod under a PodDisruptionBudget, and the times are those of EmptiedP50 and EmptiedP99 among
	// them. A guarded pod may leave when the one that left before it runs elsewhere, and that needs a node that boots.
	Unguarded    int     `json:"unguarded_nodes"`
	UnguardedP50 float64 `json:"unguarded_emptied_p50_s"`
	UnguardedP99 float64 `json:"unguarded_emptied_p99_s"`
	// Pods that were told to go, or vanished, before they had a deadline and a request for a checkpoint.
	UnwarnedPods int `json:"unwarned_pods"`
	// PurchasesPerNode counts instances that came, or are on their way, for each that was reclaimed. What the cloud rolled
	// back replaces nothing, and was not paid for.
	PurchasesPerNode float64 `json:"purchases_per_node"`
	// RequestsPerPod are those to the API server that the autoscaler made from the notices to the end, for each pod on a node that
	// was reclaimed.
	RequestsPerPod float64 `json:"requests_per_pod"`
	// Whole is when every job ran with all its workers on nodes that live; if that was not seen, the time until the end. NotWhole
	// counts the jobs that lacked workers then. Controllers is how long those of Kubernetes need for that at their own rates.
	Whole       float64 `json:"whole_s"`
	NotWhole    int     `json:"jobs_not_whole"`
	Controllers float64 `json:"controllers_s"`
	// Operators says whose real operators have half of the jobs, none if it is empty.
	Operators string `json:"operators"`
	Temper    string `json:"temper"`
}

// reclaimDetail is what else there is to know of a row. A quantile that was not reached until the end is given as the
// time until the end.
type reclaimDetail struct {
	Notices   int     `json:"notices"`
	Nodes     int     `json:"nodes"`
	Pods      int     `json:"pods"`
	Marked    spread  `json:"mark_s"`
	Replaced  spread  `json:"replace_s"`
	Warned    spread  `json:"warn_s"`
	Emptied   spread  `json:"empty_s"`
	Purchases []order `json:"purchases"`
	// Jobs counts them by how they were at the end.
	Jobs map[drill.State]int `json:"jobs"`
	// Unwarned names the pods that were not warned.
	Unwarned []string `json:"unwarned,omitempty"`
	// CPUSeconds is what the process took from the notices to the end, PeakBytes the most memory that it ever had.
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakBytes  int64   `json:"peak_bytes"`
	Loops      uint64  `json:"loops"`
	LoopMean   float64 `json:"loop_mean_s"`
	// Requests are those to the API server from the notices to the end, by method and status code.
	Requests map[string]float64 `json:"requests"`
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
	return spread{report.Percentile(seconds, 50), report.Percentile(seconds, 99), report.Percentile(seconds, 100)}
}

// figures are made of all that was seen.
func (r *reclaimRun) figures() (reclaimRow, reclaimDetail) {
	now := time.Now()
	nodes, pods, purchases := r.observer.Nodes(), r.observer.Pods(), r.purchases()
	var notices []time.Time
	guarded := r.guardedNodes(pods)
	var marked, emptied, unguarded []float64
	inTime := 0
	for id, notice := range r.noticed {
		node := nodes[id]
		notices = append(notices, notice)
		if !node.Marked.IsZero() {
			marked = append(marked, node.Marked.Sub(notice).Seconds())
		}
		took := seconds(notice, node.Emptied, now)
		emptied = append(emptied, took)
		if !guarded.Has(node.Name) {
			unguarded = append(unguarded, took)
		}
		if node.Busy == 0 && !node.Emptied.After(notice.Add(noticePeriod)) {
			inTime++
		}
	}
	replaced := replacements(notices, purchases, now)
	warned, unwarned := r.warnings(pods)
	marks, empty := spreadOf(marked), spreadOf(emptied)
	row := reclaimRow{
		Notices: r.notices, MarkedPct: percent(len(marked), len(r.noticed)), MarkP50: marks.P50, MarkP99: marks.P99,
		ReplaceP99: report.Percentile(replaced, 99), EmptiedPct: percent(inTime, len(r.noticed)), EmptiedP50: empty.P50, EmptiedP99: empty.P99,
		Unguarded: len(unguarded), UnguardedP50: spreadOf(unguarded).P50, UnguardedP99: spreadOf(unguarded).P99,
		UnwarnedPods:     len(unwarned),
		PurchasesPerNode: float64(drill.Bought(purchases)) / float64(len(r.noticed)), Temper: temperOf(r.rig.Cloud.Temper()),
	}
	if r.operated {
		row.Operators = "Kueue, JobSet"
	}
	detail := reclaimDetail{
		Notices: r.notices, Nodes: r.nodes, Pods: len(r.jobs) * workersPerJob,
		Marked: marks, Replaced: spreadOf(replaced), Warned: spreadOf(warned), Emptied: empty, Unwarned: unwarned,
	}
	for _, p := range purchases {
		detail.Purchases = append(detail.Purchases, order{p.At.Sub(r.began).Seconds(), p.Instances, p.Pool})
	}
	return row, detail
}

// guardedNodes are those on which a pod of a job with a PodDisruptionBudget was ever seen.
func (r *reclaimRun) guardedNodes(pods []drill.Pod) sets.Set[string] {
	guarded, nodes := sets.New[string](), sets.New[string]()
	for _, job := range r.jobs {
		if job.Guarded {
			guarded.Insert(job.Name)
		}
	}
	for _, pod := range pods {
		if guarded.Has(pod.Job) {
			nodes.Insert(pod.Node)
		}
	}
	return nodes
}

// controllersNeed is how long the controllers of Kubernetes take, with the requests per second that they have by default, to make and
// place as many pods as were on the nodes: a pod costs the ReplicaSet controller a request, the Job controller two, since it also removes
// the finalizer of the old one (pkg/controller/replicaset, and trackJobStatusAndRemoveFinalizers in pkg/controller/job), and the scheduler
// one for the binding. Each controller has a client of its own (ControllerClientBuilder in kube-controller-manager).
func (r *reclaimRun) controllersNeed() time.Duration {
	const controllerRate, schedulerRate = 20, 50 // see cluster.Options.DefaultRates
	lost := len(r.noticed) * workersPerJob
	ofJobs := 0
	for _, job := range r.jobs {
		if job.Kind != drill.Replicas {
			ofJobs += job.Workers * len(r.noticed) / r.nodes
		}
	}
	slowest := max(float64(lost-ofJobs)/controllerRate, 2*float64(ofJobs)/controllerRate, float64(lost)/schedulerRate)
	return time.Duration(slowest * float64(time.Second))
}

// warnings returns how long after the notices each pod that had to go was warned, and which were not.
func (r *reclaimRun) warnings(pods []drill.Pod) (warned []float64, unwarned []string) {
	for _, pod := range pods {
		if pod.Deleting.IsZero() || pod.Node == "" {
			continue
		}
		if pod.Warned.IsZero() {
			unwarned = append(unwarned, fmt.Sprintf("%s on %s, told to go after %.1f s, last seen with request %q",
				pod.NamespacedName, pod.Node, pod.Deleting.Sub(r.began).Seconds(), pod.Request))
		} else {
			warned = append(warned, pod.Warned.Sub(r.began).Seconds())
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
