package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/rig"
)

const (
	// scaleupTimeout is after how long pods that nothing was bought for are a failure.
	scaleupTimeout = 2 * time.Minute
	// submitters is how many pods are created at once.
	submitters = 64
	podsPerJob = 8
)

// scaleupRow is over the pods of all repetitions: the time from the moment before a pod is created until the cloud has
// accepted a purchase for it. It holds everything in between: the API server, the scheduler that finds no node, the
// settle window of one second, the loop, 20 ms of cloud.
type scaleupRow struct {
	Pods      int     `json:"pods"`
	Offerings int     `json:"offerings"`
	P50       float64 `json:"p50_s"`
	P99       float64 `json:"p99_s"`
	Temper    string  `json:"temper"`
}

// scaleupDetail is one repetition.
type scaleupDetail struct {
	Pods      int     `json:"pods"`
	Offerings int     `json:"offerings"`
	P50       float64 `json:"p50_s"`
	P99       float64 `json:"p99_s"`
	// CreateSeconds is how long it took to create the pods, CPUSeconds what the process took from then to the purchase.
	CreateSeconds float64  `json:"create_seconds"`
	CPUSeconds    float64  `json:"cpu_seconds"`
	Purchases     []bought `json:"purchases"`
}

// bought is an accepted purchase.
type bought struct {
	// After is counted from the creation of the first pod.
	After     float64 `json:"after_s"`
	Instances int     `json:"instances"`
	Type      string  `json:"type"`
	Zone      string  `json:"zone"`

	at time.Time
}

// shape is a market of so many offerings: pools × types × zones.
type shape struct{ pools, types, zones int }

func (s shape) offerings() int { return s.pools * s.types * s.zones }

// measureScaleup creates pods of one GPU each, all at once, with nothing else in the cluster. Each eight are of one job;
// Cluster Autoscaler looks at alike pods of one controller as at one. Every repetition has a cloud and a process of its
// own, which have come to rest before. What has no part in it, the controllers and kwok, is stopped: it would share the
// cores.
func measureScaleup(ctx context.Context, s *session) (r report.Report, err error) {
	shapes := []shape{{1, 5, 2}, {5, 10, 4}, {25, 10, 4}}
	counts := []int{1, 100, 1000}
	if s.quick {
		shapes, counts = shapes[1:2], []int{1, 1000}
	}
	bench, err := newRig(ctx, s, "scaleup", shapes[0].world())
	if err != nil {
		return r, err
	}
	defer bench.Stop()
	if err := stopControllers(ctx, bench); err != nil {
		return r, err
	}
	jobs, err := createJobs(ctx, bench, slices.Max(counts)/podsPerJob+1)
	if err != nil {
		return r, err
	}
	var rows []scaleupRow
	var details []scaleupDetail
	for _, shape := range shapes {
		for _, pods := range counts {
			repetitions := s.repetitions(map[int]int{1: 5, 100: 3, 1000: 3}[pods])
			row, found, err := scaleups(ctx, s, bench, jobs, shape, pods, repetitions)
			if err != nil {
				return r, err
			}
			rows, details = append(rows, row), append(details, found...)
		}
	}
	for _, row := range rows {
		if row.Pods == 1000 && row.Offerings == 200 {
			r.Aims = append(r.Aims, report.AtMost(1, row.P50, "p50_s at 1000 pods, 200 offerings"), report.AtMost(2, row.P99, "p99_s at 1000 pods, 200 offerings"))
		}
	}
	r.Rows, r.Details = rows, details
	return r, nil
}

func (s shape) world() alisim.World {
	const roomForAll = 2000
	return newWorld(s.pools, s.types, s.zones, roomForAll)
}

func scaleups(ctx context.Context, s *session, bench *rig.Rig, jobs []metav1.OwnerReference, shape shape, pods, repetitions int,
) (scaleupRow, []scaleupDetail, error) {
	row := scaleupRow{Pods: pods, Offerings: shape.offerings()}
	var waits []float64
	var details []scaleupDetail
	for i := range repetitions {
		s.logf("scaleup: %d pods, %d offerings, %d of %d", pods, row.Offerings, i+1, repetitions)
		if err := bench.ReplaceWorld(ctx, s.tempered(shape.world())); err != nil {
			return row, nil, err
		}
		if err := slowDown(bench); err != nil {
			return row, nil, err
		}
		found, detail, err := scaleupOnce(ctx, s, bench, jobs, pods)
		if err != nil {
			return row, nil, fmt.Errorf("%d pods, %d offerings: %w", pods, row.Offerings, err)
		}
		detail.Pods, detail.Offerings = pods, row.Offerings
		waits, details = append(waits, found...), append(details, detail)
	}
	row.P50, row.P99, row.Temper = report.Percentile(waits, 50), report.Percentile(waits, 99), temperOf(bench.Cloud.Temper())
	return row, details, nil
}

// scaleupOnce returns the seconds that each pod waited for.
func scaleupOnce(ctx context.Context, s *session, bench *rig.Rig, jobs []metav1.OwnerReference, n int,
) (waits []float64, detail scaleupDetail, err error) {
	a, err := startAutoscaler(ctx, bench, s.flags()...)
	if err != nil {
		return nil, detail, err
	}
	defer func() { err = errors.Join(err, a.Stop(), deletePods(ctx, bench)) }()
	stopProfile := s.profile(ctx, a, fmt.Sprintf("scaleup-%d-%d", n, len(bench.World.Pools)), time.Second)
	before, err := report.CPUSeconds(a.PID())
	if err != nil {
		return nil, detail, err
	}
	created, err := submit(ctx, bench, jobs, n)
	if err != nil {
		return nil, detail, err
	}
	purchases, err := awaitPurchases(ctx, bench, n)
	after, cpuErr := report.CPUSeconds(a.PID())
	err = errors.Join(err, cpuErr)
	stopProfile()
	if err != nil {
		return nil, detail, fmt.Errorf("%w\n%s", err, a.Log(20))
	}
	for i := range purchases {
		purchases[i].After = purchases[i].at.Sub(created[0]).Seconds()
	}
	waits = covered(created, purchases)
	detail = scaleupDetail{
		P50: report.Percentile(waits, 50), P99: report.Percentile(waits, 99),
		CreateSeconds: created[len(created)-1].Sub(created[0]).Seconds(), CPUSeconds: after - before, Purchases: purchases,
	}
	return waits, detail, nil
}

// submit creates pods and returns when it began to create each, sorted.
func submit(ctx context.Context, bench *rig.Rig, jobs []metav1.OwnerReference, n int) ([]time.Time, error) {
	config := bench.Cluster.AdminConfig()
	config.ContentType = runtime.ContentTypeProtobuf // spares the API server time, which it has to share
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	created := make([]time.Time, n)
	var creations errgroup.Group
	creations.SetLimit(submitters)
	for i := range n {
		creations.Go(func() error {
			pod := trainingPod(jobs[i/podsPerJob], i)
			created[i] = time.Now()
			_, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	err = creations.Wait()
	slices.SortFunc(created, time.Time.Compare)
	return created, err
}

// trainingPod asks for one GPU and what goes with it.
func trainingPod(job metav1.OwnerReference, i int) *corev1.Pod {
	pod := rig.GPUPod("train-"+strconv.Itoa(i), 1)
	pod.Labels = map[string]string{"job": job.Name}
	pod.OwnerReferences = []metav1.OwnerReference{job}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("5Gi"),
	}
	return pod
}

// createJobs makes controllers for pods. ConfigMaps will do: a controller is any object that says so.
func createJobs(ctx context.Context, bench *rig.Rig, n int) (jobs []metav1.OwnerReference, err error) {
	for i := range n {
		job, err := bench.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "job-" + strconv.Itoa(i)}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, *metav1.NewControllerRef(job, corev1.SchemeGroupVersion.WithKind("ConfigMap")))
	}
	return jobs, nil
}

// awaitPurchases waits until GPUs for n pods have been bought.
func awaitPurchases(ctx context.Context, bench *rig.Rig, n int) (purchases []bought, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, scaleupTimeout, true, func(context.Context) (bool, error) {
		if purchases, err = accepted(bench.Cloud); err != nil {
			return false, err
		}
		gpus := 0
		for _, p := range purchases {
			gpus += p.gpus()
		}
		return gpus >= n, nil
	})
	if err != nil {
		err = fmt.Errorf("wait for the purchase of %d GPUs, there are %v: %w", n, purchases, err)
	}
	return purchases, err
}

// accepted are the purchases that the cloud has accepted, in their order.
func accepted(cloud *alisim.Server) ([]bought, error) {
	var purchases []bought
	for _, request := range cloud.Requests("ScaleWithAdjustment") {
		if request.Code != "" || request.Parameters["ExecutionMode"] == "PlanOnly" {
			continue
		}
		// What the request is for stands in its metadata, also where there is only one offering and nothing to target.
		p := bought{at: request.Time}
		if err := json.Unmarshal([]byte(request.Parameters["ActivityMetadata"]), &p); err != nil {
			return nil, fmt.Errorf("metadata of a purchase: %w", err)
		}
		var err error
		if p.Instances, err = strconv.Atoi(request.Parameters["AdjustmentValue"]); err != nil {
			return nil, err
		}
		purchases = append(purchases, p)
	}
	slices.SortFunc(purchases, func(a, b bought) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return purchases, nil
}

func (b bought) gpus() int { return b.Instances * market.Catalogue()[b.Type].GPUs }

// covered returns how many seconds each pod waited for the purchase that covers it. The pods are alike, so the first
// purchase is taken to be for those that were created first.
func covered(created []time.Time, purchases []bought) []float64 {
	var waits []float64
	for _, p := range purchases {
		for range min(p.gpus(), len(created)-len(waits)) {
			waits = append(waits, p.at.Sub(created[len(waits)]).Seconds())
		}
	}
	return waits
}
