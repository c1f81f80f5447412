package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/operators"
)

// finishTime is how long jobs may take to end once nobody is killed any more: one that is suspended is resumed first.
const finishTime = 3 * time.Minute

// endedBadly is the state of a job that was whole or suspended, and has not completed as if nothing had happened.
const endedBadly drill.State = "ended badly"

var batchJobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

// newOperatedJobs are as many as nodes, half of them queued and half JobSets.
func newOperatedJobs(nodes int) (all []drill.Job) {
	for i := range nodes {
		kind := drill.Queued
		if i%2 == 1 {
			kind = drill.JobSet
		}
		all = append(all, drill.Job{Name: fmt.Sprintf("job-%03d", i), Kind: kind, Workers: workers, Min: workers, Guarded: i%guardedOneIn == 0})
	}
	return all
}

// startRealOperators also makes the queue, which has room for all jobs.
func (e *experiment) startRealOperators(ctx context.Context, dir string) error {
	for _, system := range []operators.System{operators.JobSet, operators.Kueue} {
		operator, err := operators.Start(ctx, system, operators.Options{Cluster: e.rig.Cluster, Dir: dir, Output: e.output})
		if err != nil {
			return err
		}
		e.operators = append(e.operators, operator)
	}
	return drill.CreateQueue(ctx, e.rig, e.nodes*gpus)
}

// finish has all jobs end, and returns how they did.
func (e *experiment) finish(ctx context.Context) (ended []end, err error) {
	waitErr := wait.PollUntilContextTimeout(ctx, time.Second, finishTime, true, func(ctx context.Context) (bool, error) {
		if err = drill.Finish(ctx, e.rig, e.jobs); err != nil {
			return false, nil // a pod may be gone meanwhile
		}
		var found operated
		if found, err = e.findOperated(ctx); err != nil {
			return false, nil
		}
		ended = found.ends(e.jobs)
		return !slices.ContainsFunc(ended, func(one end) bool { return len(one.faults) > 0 }), nil
	})
	if ctx.Err() != nil || ended == nil {
		return nil, fmt.Errorf("finish the jobs: %w", errors.Join(waitErr, err))
	}
	return ended, nil // what is wrong is told by the verdict
}

// operated are the objects of real operators.
type operated struct {
	// jobs and sets are by name.
	jobs, sets map[string]unstructured.Unstructured
	// workloads are by the UID of what they stand for, parts are the Jobs of each JobSet.
	workloads map[types.UID][]unstructured.Unstructured
	parts     map[string][]unstructured.Unstructured
}

func (e *experiment) findOperated(ctx context.Context) (found operated, err error) {
	client, err := dynamic.NewForConfig(e.rig.Cluster.AdminConfig())
	if err != nil {
		return found, err
	}
	var lists [3][]unstructured.Unstructured
	for i, resource := range []schema.GroupVersionResource{batchJobs, operators.JobSets, operators.Workloads} {
		list, err := client.Resource(resource).Namespace(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return found, err
		}
		lists[i] = list.Items
	}
	return newOperated(lists[0], lists[1], lists[2]), nil
}

func newOperated(jobs, sets, workloads []unstructured.Unstructured) operated {
	found := operated{
		jobs: map[string]unstructured.Unstructured{}, sets: map[string]unstructured.Unstructured{},
		workloads: map[types.UID][]unstructured.Unstructured{}, parts: map[string][]unstructured.Unstructured{},
	}
	for _, job := range jobs {
		found.jobs[job.GetName()] = job
		if set := job.GetLabels()[operators.LabelJobSet]; set != "" {
			found.parts[set] = append(found.parts[set], job)
		}
	}
	for _, set := range sets {
		found.sets[set.GetName()] = set
	}
	for _, workload := range workloads {
		if owner := metav1.GetControllerOf(&workload); owner != nil {
			found.workloads[owner.UID] = append(found.workloads[owner.UID], workload)
		}
	}
	return found
}

// end is how a job of a real operator ended.
type end struct {
	job      drill.Job
	complete bool
	// restarts are those that its system counted, whatever it calls them.
	restarts int
	faults   []string
}

func (found operated) ends(jobs []drill.Job) (ended []end) {
	for _, job := range jobs {
		one := end{job: job}
		switch job.Kind {
		case drill.Queued:
			one.judge(found.jobs[job.Name], "Complete", "failed")
			one.judgeWorkloads(found.workloads[found.uid(job.Name)])
		case drill.JobSet:
			one.judge(found.sets[job.Name], "Completed", "restarts")
			for _, part := range found.parts[job.Name] {
				one.restarts += number(part, "status", "failed")
			}
		}
		if one.restarts > 0 {
			one.fault("%d restarts were counted", one.restarts)
		}
		ended = append(ended, one)
	}
	return ended
}

// uid is that of the batch Job.
func (found operated) uid(name string) types.UID {
	job := found.jobs[name]
	return job.GetUID()
}

func (one *end) fault(format string, args ...any) {
	one.faults = append(one.faults, fmt.Sprintf(format, args...))
}

// judge looks at the object of the job, whose status has the condition when it is complete, and counts restarts.
func (one *end) judge(object unstructured.Unstructured, complete, restarts string) {
	if object.Object == nil {
		one.fault("is gone")
		return
	}
	one.complete = isTrue(object, complete)
	switch {
	case isTrue(object, "Failed"):
		one.fault("failed")
	case !one.complete:
		one.fault("did not complete")
	}
	one.restarts += number(object, "status", restarts)
	one.judgeMarks(object)
}

// judgeWorkloads is about a job's Workload, which Kueue keeps.
func (one *end) judgeWorkloads(workloads []unstructured.Unstructured) {
	if len(workloads) != 1 {
		one.fault("has %d Workloads", len(workloads))
	}
	for _, workload := range workloads {
		if active, set, _ := unstructured.NestedBool(workload.Object, "spec", "active"); set && !active {
			one.fault("its Workload is not active")
		}
		one.restarts += number(workload, "status", "requeueState", "count")
		one.judgeMarks(workload)
	}
}

// judgeMarks finds what is on an object only while it is held.
func (one *end) judgeMarks(object unstructured.Unstructured) {
	for _, keys := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
		for key := range keys {
			// All the annotations of a held job begin with the label.
			if strings.HasPrefix(key, api.LabelHeld) || key == api.AnnotationStopRequested {
				one.fault("%s has %s left", object.GetKind(), key)
			}
		}
	}
}

func isTrue(object unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(one any) bool {
		fields, _ := one.(map[string]any)
		return fields["type"] == condition && fields["status"] == "True"
	})
}

func number(object unstructured.Unstructured, fields ...string) int {
	n, _, _ := unstructured.NestedInt64(object.Object, fields...)
	return int(n)
}

// ends sums up the jobs of one kind.
type ends struct {
	Jobs     int `json:"jobs"`
	Complete int `json:"complete"`
	// Restarts are those that the systems counted: pods that failed, restarts of JobSets, requeues of Workloads.
	Restarts int `json:"restarts_counted"`
	Broken   int `json:"broken"`
}

// addEnds adds to the broken jobs those that were whole or suspended before they were to end, and has their states say so.
func (v *verdict) addEnds(ended []end, states map[string]drill.State) {
	v.Systems = map[drill.Kind]*ends{}
	for _, one := range ended {
		of := v.Systems[one.job.Kind]
		if of == nil {
			of = &ends{}
			v.Systems[one.job.Kind] = of
		}
		of.Jobs++
		of.Restarts += one.restarts
		if one.complete {
			of.Complete++
		}
		if len(one.faults) > 0 {
			of.Broken++
			if !isBroken(states[one.job.Name]) {
				states[one.job.Name] = endedBadly
				v.JobsBroken++
			}
			v.fault("%s %s: %s", one.job.Kind, one.job.Name, strings.Join(one.faults, ", "))
		}
	}
}
