// Package batchjob is the job system of Kubernetes itself: the Job.
package batchjob

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "job"

var resource = schema.GroupVersionResource{Group: batchv1.GroupName, Version: "v1", Resource: "jobs"}

// System is the batch Job.
//
// An Indexed Job with more than one pod at a time is one gang: the pods of a training that starts over from its checkpoint
// when it loses one, and that does not run before it has all of them again. Pods of any other Job are each on their own: the
// Job controller replaces one that is lost, and counts a failure unless the podFailurePolicy ignores DisruptionTarget. When
// a Job is suspended its pods are deleted and none of them counts.
type System struct{ jobs.SuspendField }

var (
	_ jobs.System    = (*System)(nil)
	_ jobs.Suspender = (*System)(nil)
	_ jobs.Divided   = (*System)(nil)
)

// New returns the system.
func New(cluster jobs.Cluster) *System {
	return &System{jobs.NewSuspendField(cluster, resource, "spec", "suspend")}
}

// job is what is read of a Job.
type job struct {
	Spec *struct {
		Parallelism    *jobs.Count            `json:"parallelism"`
		Completions    *jobs.Count            `json:"completions"`
		CompletionMode batchv1.CompletionMode `json:"completionMode"`
		Suspend        bool                   `json:"suspend"`
		Template       json.RawMessage        `json:"template"`
	} `json:"spec"`
	Status struct {
		Active        jobs.Count       `json:"active"`
		Succeeded     jobs.Count       `json:"succeeded"`
		FailedIndexes string           `json:"failedIndexes"`
		Conditions    []jobs.Condition `json:"conditions"`
	} `json:"status"`
}

func (*System) Name() string { return Name }
func (*System) Member(pod *corev1.Pod) (name string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, batchv1.GroupName, "Job")
	if owner == nil {
		return "", "", false
	}
	return owner.Name, jobs.RoleWorker, true
}

// UnitOf returns the pod by itself unless the Job is Indexed: the Job controller writes the index on all pods of an Indexed Job.
func (*System) UnitOf(pod *corev1.Pod) string {
	if _, isIndexed := pod.Annotations[batchv1.JobCompletionIndexAnnotation]; isIndexed {
		return ""
	}
	return pod.Name
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	var job job
	if err := jobs.Decode(object, &job); err != nil {
		return jobs.Job{}, err
	}
	if job.Spec == nil {
		return jobs.Job{}, jobs.Missing("spec")
	}
	parallelism, remaining := job.Spec.Parallelism.Or(1), job.remaining()
	read := jobs.Job{
		Max: parallelism, Replicas: remaining, Suspended: job.Spec.Suspend,
		Finished: jobs.IsTrue(job.Status.Conditions, "Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"),
	}
	if job.Spec.CompletionMode == batchv1.IndexedCompletion && parallelism > 1 {
		read.Min = remaining
	}
	return read, nil
}

// remaining returns how many pods the Job controller keeps running: none for an index that has succeeded, or that has failed for
// good. Once a pod of a Job without completions has succeeded, it replaces none.
//
// Source: manageJob in pkg/controller/job/job_controller.go and firstPendingIndexes in indexed_job_utils.go of Kubernetes v1.33.
func (j *job) remaining() int {
	parallelism := j.Spec.Parallelism.Or(1)
	switch {
	case j.Spec.Completions != nil:
		done := j.Status.Succeeded.Int() + countIndexes(j.Status.FailedIndexes)
		return min(parallelism, max(j.Spec.Completions.Int()-done, 0))
	case j.drainsAway():
		return min(parallelism, j.Status.Active.Int())
	}
	return parallelism
}

// drainsAway returns whether the Job has no completions and a pod of it has succeeded: it is complete once it has no other pod.
func (j *job) drainsAway() bool { return j.Spec.Completions == nil && j.Status.Succeeded.Int() > 0 }

// countIndexes returns how many indexes are in a list like 1,3-5, as in the status of an Indexed Job.
func countIndexes(list string) (count int) {
	for _, each := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(each, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, errOfLast := strconv.Atoi(to)
		if err == nil && errOfLast == nil {
			count += last - first + 1
		}
	}
	return count
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	var job job
	if err := jobs.Decode(of.Object, &job); err != nil {
		return nil, err
	}
	if job.Spec == nil {
		return nil, jobs.Missing("spec")
	}
	return []jobs.PodSet{{
		Path: "spec.template", Template: job.Spec.Template, Count: workers, Role: jobs.RoleWorker, NamePrefix: of.Name,
		Labels: func(i int) map[string]string {
			return map[string]string{batchv1.JobNameLabel: of.Name, batchv1.JobCompletionIndexAnnotation: strconv.Itoa(i)}
		},
	}}, nil
}

// Suspend leaves alone a Job that another controller made, which would undo it, or wait for ever, and a Job that the Job controller
// would take for complete once its pods are gone (syncJob in pkg/controller/job/job_controller.go of Kubernetes v1.33).
func (s *System) Suspend(ctx context.Context, of jobs.Job, reason jobs.HoldReason) (changed bool, err error) {
	if owner := metav1.GetControllerOf(of.Object); owner != nil && owner.Kind != "CronJob" {
		return false, fmt.Errorf("it belongs to %s %s: %w", owner.Kind, owner.Name, jobs.ErrUnsupported)
	}
	var job job
	if err := jobs.Decode(of.Object, &job); err != nil {
		return false, err
	}
	if job.Spec != nil && job.drainsAway() {
		return false, fmt.Errorf("it has no completions and one of its pods has succeeded, so it would be complete without the others: %w", jobs.ErrUnsupported)
	}
	return s.SuspendField.Suspend(ctx, of, reason)
}
