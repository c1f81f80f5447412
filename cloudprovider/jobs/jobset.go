package jobs

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	labelJobSet        = "jobset.sigs.k8s.io/jobset-name"
	labelReplicatedJob = "jobset.sigs.k8s.io/replicatedjob-name"
	labelJobIndex      = "jobset.sigs.k8s.io/job-index"
	labelGlobalIndex   = "jobset.sigs.k8s.io/job-global-index"
	labelCoordinator   = "jobset.sigs.k8s.io/coordinator"
	trainerGroup       = "trainer.kubeflow.org"
	kindTrainJob       = "TrainJob"
)

var trainJobs = schema.GroupVersionResource{Group: trainerGroup, Version: "v1alpha1", Resource: "trainjobs"}

// jobSet is a JobSet, be it by itself or made by a TrainJob of the Kubeflow Trainer, which is of the same name.
//
// It is not elastic: all its pods are one gang. A pod that is lost fails its Job unless the podFailurePolicy ignores
// DisruptionTarget, and a failed Job restarts all of them, as often as maxRestarts allows. Suspended, nothing is counted. The
// coordinator, or else the first pod of the first Job, is what the others meet at; a replicated job by the name of
// "launcher" is one.
//
// Where there is a TrainJob, it is the TrainJob that is suspended, as it would undo what is done to its JobSet; the marks
// are on the JobSet all the same, which outlives the suspension.
type jobSet struct{ setSuspend }

func newJobSet(c *cluster) Adapter {
	return &jobSet{setSuspend{
		system: &system{
			cluster: c, name: "jobset", kind: "JobSet",
			resource: schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
		},
		path: []string{"spec", "suspend"},
	}}
}

func (j *jobSet) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelJobSet]
	if name == "" {
		return Membership{}, false
	}
	role := RoleWorker
	switch {
	case pod.Labels[labelReplicatedJob] == roleLauncher:
		role = RoleLauncher
	case coordinates(pod.Labels):
		role = RoleHost
	}
	return Membership{Ref: j.ref(pod.Namespace, name), Role: role}, true
}

// coordinates says whether a pod with these labels is what the others meet at. The coordinator's label is the same on
// all pods: it is the host name of one of them.
func coordinates(labels map[string]string) bool {
	if coordinator, ok := labels[labelCoordinator]; ok {
		host, _, _ := strings.Cut(coordinator, ".")
		return host == strings.Join([]string{labels[labelJobSet], labels[labelReplicatedJob], labels[labelJobIndex], labels[labelIndex]}, "-")
	}
	return labels[labelGlobalIndex] == "0" && labels[labelIndex] == "0"
}

// replicatedJob is so many Jobs of so many pods each.
type replicatedJob struct {
	fields
	name       string
	jobs, pods int
	template   fields
}

// replicatedJobs are those that have not ended, each with as many Jobs as have not succeeded.
func replicatedJobs(object fields) ([]replicatedJob, error) {
	spec, err := object.section("spec")
	if err != nil {
		return nil, err
	}
	list, err := spec.list("replicatedJobs")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, spec.errorf("replicatedJobs", "is missing")
	}
	succeeded, err := succeededJobs(object)
	if err != nil {
		return nil, err
	}
	var left []replicatedJob
	for _, item := range list {
		replicated, err := readReplicatedJob(item)
		if err != nil {
			return nil, err
		}
		if replicated.jobs -= succeeded[replicated.name]; replicated.jobs > 0 {
			left = append(left, replicated)
		}
	}
	return left, nil
}

func readReplicatedJob(item fields) (replicatedJob, error) {
	r := replicatedJob{fields: item}
	var err error
	if r.name, err = item.text("name"); err != nil {
		return r, err
	}
	if r.jobs, err = item.count("replicas", 1); err != nil {
		return r, err
	}
	spec, err := item.section("template", "spec")
	if err != nil {
		return r, err
	}
	if r.pods, err = spec.count("parallelism", 1); err != nil {
		return r, err
	}
	r.template, err = spec.section("template")
	return r, err
}

// succeededJobs are how many Jobs of each replicated job have succeeded: initializers do, and do not run again.
func succeededJobs(object fields) (map[string]int, error) {
	status, err := object.maybe("status")
	if err != nil {
		return nil, err
	}
	list, err := status.list("replicatedJobsStatus")
	if err != nil {
		return nil, err
	}
	succeeded := map[string]int{}
	for _, item := range list {
		name, err := item.text("name")
		if err != nil {
			return nil, err
		}
		if succeeded[name], err = item.count("succeeded", 0); err != nil {
			return nil, err
		}
	}
	return succeeded, nil
}

func (j *jobSet) Read(object *unstructured.Unstructured) (Job, error) {
	replicated, err := replicatedJobs(fieldsOf(object))
	if err != nil {
		return Job{}, err
	}
	job := Job{Finished: condition(object, "Completed", "Failed")}
	for _, r := range replicated {
		if r.name != roleLauncher {
			job.Replicas += r.jobs * r.pods
		}
	}
	job.Min, job.Max = job.Replicas, job.Replicas
	job.Suspended, err = fieldsOf(object).flagAt(j.path...)
	return job, err
}

// Gang returns all pods whatever the number of workers.
func (j *jobSet) Gang(job Job, _ int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	replicated, err := replicatedJobs(object)
	if err != nil {
		return nil, err
	}
	var groups []replicaGroup
	for _, r := range replicated {
		role := RoleWorker
		if r.name == roleLauncher {
			role = RoleLauncher
		}
		groups = append(groups, replicaGroup{
			template: r.template, replicas: r.jobs * r.pods, role: role,
			name: func(i int) string { return fmt.Sprintf("%s-%s-%d-%d", job.Name, r.name, i/r.pods, i%r.pods) },
			labels: func(i int) map[string]string {
				return map[string]string{
					labelJobSet: job.Name, labelReplicatedJob: r.name, labelJobIndex: strconv.Itoa(i / r.pods), labelIndex: strconv.Itoa(i % r.pods),
				}
			},
		})
	}
	return gang(job, room, groups...)
}

func (j *jobSet) Suspend(ctx context.Context, job Job, reason Reason) error {
	above := trainJobOf(job.Object)
	if above == nil {
		return j.setSuspend.Suspend(ctx, job, reason)
	}
	if suspended(job, reason) {
		return ErrUnchanged
	}
	if err := j.suspendable(ctx, job, above); err != nil {
		return err
	}
	// The marks go first: a TrainJob that is suspended without them would be taken for its owner's doing.
	if err := j.patchJob(ctx, job, patch{"metadata": j.held(job, HeldSuspended, reason)}); err != nil {
		return err
	}
	return j.setTrainJob(ctx, job, above, true)
}

func (j *jobSet) Resume(ctx context.Context, job Job, workers int) error {
	above := trainJobOf(job.Object)
	if above == nil {
		return j.setSuspend.Resume(ctx, job, workers)
	}
	if heldAs(job) != HeldSuspended {
		return ErrUnchanged
	}
	if err := j.setTrainJob(ctx, job, above, false); err != nil {
		return err
	}
	return j.patchJob(ctx, job, patch{"metadata": released()})
}

// suspendable says whether it is ours to suspend the TrainJob: Kueue's label may be on it alone.
func (j *jobSet) suspendable(ctx context.Context, job Job, above *metav1.OwnerReference) error {
	object, err := j.dynamic.Resource(trainJobs).Namespace(job.Namespace).Get(ctx, above.Name, metav1.GetOptions{})
	if err == nil && queued(object) {
		err = errQueued
	}
	return err
}

func (j *jobSet) setTrainJob(ctx context.Context, job Job, above *metav1.OwnerReference, suspend bool) error {
	change := patch{}
	setNested(change, suspend, "spec", "suspend")
	name := types.NamespacedName{Namespace: job.Namespace, Name: above.Name}
	if _, err := j.patchObject(ctx, trainJobs, name, above.UID, change); err != nil {
		return fmt.Errorf("TrainJob %s: %w", name, err)
	}
	return nil
}

// trainJobOf is the TrainJob that made a JobSet, or nil.
func trainJobOf(object *unstructured.Unstructured) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != kindTrainJob || groupOf(owner.APIVersion) != trainerGroup {
		return nil
	}
	return owner
}
