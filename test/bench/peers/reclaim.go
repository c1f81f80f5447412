package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/bench/population"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/rig"
)

const (
	reclaimed, workersPerJob = 50, 5
	// checkpointTime is how long after it was asked to a job says that it has saved its work.
	checkpointTime = 5 * time.Second
	// wholeTimeout is how long after the notices, five minutes after which the instances are gone, the jobs are waited for.
	wholeTimeout = 10 * time.Minute
)

// measureReclaim reclaims all of 50 nodes at once, on which ten elastic jobs of five workers train.
func measureReclaim(ctx context.Context, s *session, p peer) ([]found, error) {
	world := newWorld(group{"asg-small", small, reclaimed, 3 * reclaimed}, group{"asg-big", big, 0, 3 * reclaimed})
	t, err := newTrial(ctx, s, "reclaim", rig.Options{World: world})
	if err != nil {
		return nil, err
	}
	defer t.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the observer
	observer, jobs, err := t.train(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.start(ctx, p); err != nil {
		return nil, err
	}
	began := time.Now()
	noticed := map[string]bool{}
	for _, instance := range t.Cloud.Instances() {
		if err := t.Cloud.Reclaim(instance.ID); err != nil {
			return nil, err
		}
		noticed[instance.ID] = true
	}
	whole, err := t.until(ctx, began, wholeTimeout, func(context.Context) (bool, error) {
		return runElsewhere(observer, noticed) == len(jobs)*workersPerJob, nil
	})
	if err != nil {
		return nil, err
	}
	return figures(observer, noticed, began, whole), nil
}

// train fills the nodes with jobs, and returns when the nodes have GPUs.
func (t *trial) train(ctx context.Context) (observer *drill.Observer, jobs []drill.Job, err error) {
	nodes, err := population.AwaitGPUs(ctx, t.Rig, reclaimed, 1)
	if err != nil {
		return nil, nil, err
	}
	if observer, err = drill.Watch(ctx, t.Cluster.AdminConfig()); err != nil {
		return nil, nil, err
	}
	for i := range reclaimed / workersPerJob {
		jobs = append(jobs, drill.Job{
			Name: fmt.Sprintf("job-%d", i), Namespace: metav1.NamespaceDefault, Kind: drill.Replicas, Workers: workersPerJob, Min: 1,
		})
	}
	place := func(job, worker int) string { return nodes[job*workersPerJob+worker].Name }
	if err := drill.Populate(ctx, t.Rig, jobs, place); err != nil {
		return nil, nil, err
	}
	go observer.Answer(ctx, t.Client, checkpointTime)
	return observer, jobs, nil
}

// runElsewhere is how many workers run on nodes that are not reclaimed.
func runElsewhere(observer *drill.Observer, noticed map[string]bool) (workers int) {
	names := map[string]bool{}
	for _, node := range observer.Nodes() {
		names[node.Name] = noticed[node.InstanceID]
	}
	for _, pod := range observer.Pods() {
		if pod.Running && !names[pod.Node] {
			workers++
		}
	}
	return workers
}

// figures are made of all that was seen.
func figures(observer *drill.Observer, noticed map[string]bool, began time.Time, whole figure) []found {
	var marked []float64
	for _, node := range observer.Nodes() {
		if noticed[node.InstanceID] && !node.Marked.IsZero() {
			marked = append(marked, node.Marked.Sub(began).Seconds())
		}
	}
	taint := none
	if len(marked) == len(noticed) {
		taint = number(report.Percentile(marked, 99))
	}
	unwarned := 0
	for _, pod := range observer.Pods() {
		if !pod.Deleting.IsZero() && pod.Node != "" && pod.Warned.IsZero() {
			unwarned++
		}
	}
	return []found{
		{"50 nodes reclaimed at once: notice to taint, p99, s", taint},
		{"50 nodes reclaimed at once: pods lost without warning", number(float64(unwarned))},
		{"50 nodes reclaimed at once: all workers run on other nodes, s", whole},
	}
}
