package jobs

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	batchGroup    = "batch"
	labelBatchJob = "batch.kubernetes.io/job-name"
	labelIndex    = "batch.kubernetes.io/job-completion-index"
	// systemBatchJob is the name of the system in Refs.
	systemBatchJob = "job"
)

// batchJob is Kubernetes' own Job.
//
// An Indexed Job with more than one pod at a time is one gang: the pods of a training that starts over from its checkpoint
// when it loses one, and it is worth no more than nothing until it has all again. Pods of any other Job are each for
// itself: one that is lost is made again by the Job's controller, and counts as a failure unless the podFailurePolicy
// ignores DisruptionTarget. Suspended, a Job deletes its pods and counts none of them.
type batchJob struct {
	setSuspend
}

func newBatchJob(c *cluster) Adapter {
	return &batchJob{setSuspend{
		system: &system{cluster: c, name: systemBatchJob, kind: "Job", resource: schema.GroupVersionResource{Group: batchGroup, Version: "v1", Resource: "jobs"}},
		path:   []string{"spec", "suspend"},
	}}
}

func (b *batchJob) Member(pod *corev1.Pod) (Membership, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != b.kind || groupOf(owner.APIVersion) != batchGroup {
		return Membership{}, false
	}
	return Membership{Ref: b.ref(pod.Namespace, owner.Name), Role: RoleWorker}, true
}

func (b *batchJob) Read(object *unstructured.Unstructured) (Job, error) {
	spec, err := fieldsOf(object).section("spec")
	if err != nil {
		return Job{}, err
	}
	parallelism, err := spec.count("parallelism", 1)
	if err != nil {
		return Job{}, err
	}
	mode, err := spec.text("completionMode")
	if err != nil {
		return Job{}, err
	}
	left, err := remaining(object, spec, parallelism)
	if err != nil {
		return Job{}, err
	}
	job := Job{Max: parallelism, Replicas: left, Finished: condition(object, "Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")}
	if mode == "Indexed" && parallelism > 1 {
		job.Min = left
	}
	job.Suspended, err = spec.flag("suspend")
	return job, err
}

// remaining is how many pods the Job runs at a time from now on: those that have succeeded do not run again.
func remaining(object *unstructured.Unstructured, spec fields, parallelism int) (int, error) {
	completions, err := spec.count("completions", -1)
	if err != nil || completions < 0 {
		return parallelism, err
	}
	status, err := fieldsOf(object).maybe("status")
	if err != nil {
		return 0, err
	}
	succeeded, err := status.count("succeeded", 0)
	return min(parallelism, max(completions-succeeded, 0)), err
}

func (b *batchJob) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	template, err := object.section("spec", "template")
	if err != nil {
		return nil, err
	}
	return gang(job, room, replicaGroup{
		template: template, replicas: workers, role: RoleWorker, name: numbered(job.Name),
		labels: func(i int) map[string]string {
			return map[string]string{labelBatchJob: job.Name, labelIndex: strconv.Itoa(i)}
		},
	})
}

// Suspend leaves alone what another controller made: it would undo it, or wait for ever.
func (b *batchJob) Suspend(ctx context.Context, job Job, reason Reason) error {
	if owner := metav1.GetControllerOf(job.Object); owner != nil && owner.Kind != "CronJob" {
		return fmt.Errorf("it belongs to %s %s: %w", owner.Kind, owner.Name, ErrUnsupported)
	}
	return b.setSuspend.Suspend(ctx, job, reason)
}

// groupOf is the group of an apiVersion.
func groupOf(apiVersion string) string {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return version.Group
}
