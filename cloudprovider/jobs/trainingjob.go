package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	kaiGroup             = "kai.alibabacloud.com"
	labelTrainingGroup   = "group-name"
	labelTrainingJob     = "training-job-name"
	labelTrainingRole    = "training-job-role"
	labelTrainingIndex   = "replica-index"
	roleLauncher         = "launcher"
	roleWorker           = "worker"
	trainingPhaseCreated = "Created"
	trainingPhaseHeld    = "Suspended"
	// scaleOutTimeout in seconds is how long the operator waits for the new workers. It does nothing else for the job in that
	// time, so that more would keep a ScaleIn for the next reclaim waiting until it is too late.
	scaleOutTimeout = 300
)

var (
	scaleIns  = schema.GroupVersionResource{Group: kaiGroup, Version: "v1alpha1", Resource: "scaleins"}
	scaleOuts = schema.GroupVersionResource{Group: kaiGroup, Version: "v1alpha1", Resource: "scaleouts"}
)

// trainingJob is et-operator's TrainingJob, which is what `arena submit etjob` makes: Horovod Elastic.
//
// A worker that is lost is made anew, under a new index, only where the workers' restartPolicy is Always, and Horovod
// puts a host that failed on a blacklist; so that workers are taken out of the job, by a ScaleIn, before they are evicted, and
// put back by a ScaleOut. The operator works on one of either at a time, and does not look at minReplicas. The launcher's loss
// is the job's.
//
// It is suspended and resumed as Elastic-Job-Supervisor does it: by an annotation, at which the operator deletes all pods
// with no grace. It does not come back by itself when the annotation is taken off: phase and conditions have to be
// reset, and the ConfigMap with the list of hosts deleted.
type trainingJob struct{ *system }

func newTrainingJob(c *cluster) Adapter {
	return &trainingJob{&system{
		cluster: c, name: "trainingjob", kind: "TrainingJob",
		resource: schema.GroupVersionResource{Group: kaiGroup, Version: "v1alpha1", Resource: "trainingjobs"},
	}}
}

func (t *trainingJob) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelTrainingJob]
	if pod.Labels[labelTrainingGroup] != kaiGroup || name == "" {
		return Membership{}, false
	}
	return Membership{Ref: t.ref(pod.Namespace, name), Role: roleOf(pod.Labels[labelTrainingRole])}, true
}

// roleOf is for systems that have launchers and workers and call them so.
func roleOf(name string) Role {
	if name == roleLauncher {
		return RoleLauncher
	}
	return RoleWorker
}

func (t *trainingJob) Read(object *unstructured.Unstructured) (Job, error) {
	worker, err := fieldsOf(object).section("spec", "etReplicaSpecs", "worker")
	if err != nil {
		return Job{}, err
	}
	var job Job
	if job.Replicas, err = worker.count("replicas", 1); err != nil {
		return Job{}, err
	}
	if job.Min, err = worker.count("minReplicas", job.Replicas); err != nil {
		return Job{}, err
	}
	targets, err := targetWorkers(object)
	if err != nil {
		return Job{}, err
	}
	most := max(job.Replicas, len(targets))
	if len(targets) > 0 {
		job.Replicas = len(targets)
	}
	if job.Max, err = worker.count("maxReplicas", most); err != nil {
		return Job{}, err
	}
	phase, err := phase(object, "phase")
	if err != nil {
		return Job{}, err
	}
	if phase == "" || phase == trainingPhaseCreated {
		job.Min = max(job.Min, job.Replicas) // the launcher is not started before all workers run, and lost ones may not come back
		job.Max = max(job.Max, job.Min)
	}
	job.Suspended = phase == trainingPhaseHeld || object.GetAnnotations()[api.AnnotationSupervisorSuspended] == "true"
	job.Finished = phase == "Succeeded" || (phase == "Failed" && !restarts(object))
	return job, nil
}

// targetWorkers are the pods that the operator takes for the job's workers: none before they are made.
func targetWorkers(object *unstructured.Unstructured) ([]string, error) {
	status, err := fieldsOf(object).maybe("status")
	if err != nil {
		return nil, err
	}
	return status.strings("targetWorkers")
}

// restarts says whether the operator will start a job that failed once more.
func restarts(object *unstructured.Unstructured) bool {
	spec, _ := fieldsOf(object).maybe("spec")
	status, _ := fieldsOf(object).maybe("status")
	policy, _ := spec.text("restartPolicy")
	limit, _ := spec.count("backoffLimit", 6)
	spent, _ := status.count("restartCount", 0)
	return policy == "OnFailure" && spent < limit
}

func (t *trainingJob) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	worker, err := object.section("spec", "etReplicaSpecs", "worker", "template")
	if err != nil {
		return nil, err
	}
	launcher, err := object.section("spec", "etReplicaSpecs", "launcher", "template")
	if err != nil {
		return nil, err
	}
	labels := func(role string) map[string]string {
		return map[string]string{labelTrainingGroup: kaiGroup, labelTrainingJob: job.Name, labelTrainingRole: role}
	}
	return gang(job, room,
		replicaGroup{
			template: worker, replicas: workers, role: RoleWorker, name: numbered(job.Name + "-worker"),
			labels: func(i int) map[string]string {
				labels := labels(roleWorker)
				labels[labelTrainingIndex] = strconv.Itoa(i)
				return labels
			},
		},
		replicaGroup{
			template: launcher, replicas: 1, role: RoleLauncher, name: func(int) string { return job.Name + "-launcher" },
			labels: func(int) map[string]string { return labels(roleLauncher) },
		},
	)
}

// Shrink makes one ScaleIn of these pods. The operator rewrites the list of hosts, waits until the launcher has no process
// on them, and deletes them.
func (t *trainingJob) Shrink(ctx context.Context, job Job, pods []string) error {
	targets, err := targetWorkers(job.Object)
	if err != nil {
		return err
	}
	leaving := inBoth(targets, pods)
	if len(leaving) == 0 || job.Suspended || job.Finished {
		return ErrUnchanged
	}
	if left := len(targets) - len(leaving); left < job.Min {
		return fmt.Errorf("%d of %d workers would be left, fewer than the minimum of %d: %w", left, len(targets), job.Min, ErrUnsupported)
	}
	name := scalerName(job, "in", append([]string{strconv.Itoa(len(targets))}, leaving...)...)
	next, err := t.nextScaler(ctx, job, name)
	if err != nil {
		return err
	}
	if err := t.patchJob(ctx, job, patch{"metadata": t.held(job, HeldShrunk, ReasonReclaim)}); err != nil {
		return err
	}
	return t.scale(ctx, scaleIns, "ScaleIn", next, job, map[string]any{"toDelete": map[string]any{"podNames": values(leaving)}})
}

// inBoth is what both lists have, sorted, once each.
func inBoth(list, other []string) []string {
	var both []string
	for _, item := range list {
		if slices.Contains(other, item) {
			both = append(both, item)
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// Grow makes one ScaleOut of the workers that are missing, and takes the marks off once the job has all that it had.
func (t *trainingJob) Grow(ctx context.Context, job Job, workers int) error {
	if job.Suspended || job.Finished {
		return ErrUnchanged
	}
	workers = min(workers, job.Max)
	if missing := workers - job.Replicas; missing > 0 {
		next, err := t.nextScaler(ctx, job, scalerName(job, "out", strconv.Itoa(job.Replicas), strconv.Itoa(workers)))
		if err != nil {
			return err
		}
		return t.scale(ctx, scaleOuts, "ScaleOut", next, job, map[string]any{
			"timeout": int64(scaleOutTimeout), "toAdd": map[string]any{"count": int64(missing)},
		})
	}
	if heldAs(job) != HeldShrunk || job.Replicas < wanted(job) {
		return ErrUnchanged
	}
	if _, err := t.nextScaler(ctx, job, "release"); err != nil {
		return err // a ScaleIn that has yet to begin will take workers off, and the marks are what remembers them
	}
	return t.patchJob(ctx, job, patch{"metadata": released()})
}

// maxFailedScalers is how many times one change to a job is tried.
const maxFailedScalers = 3

// nextScaler names the ScaleIn or ScaleOut to make. The error is a BusyError where another is at work on the job, and
// ErrUnchanged where it is this very one. Ended ones stay until the job goes, and are counted: the same change may be due
// twice, since the operator gives names of workers to others once they are free.
func (t *trainingJob) nextScaler(ctx context.Context, job Job, name string) (string, error) {
	var ended, failed int
	for _, resource := range []schema.GroupVersionResource{scaleIns, scaleOuts} {
		found, err := t.dynamic.Resource(resource).Namespace(job.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		for i := range found.Items {
			scaler := &found.Items[i]
			if target, _, _ := unstructured.NestedString(scaler.Object, "spec", "selector", "name"); target != job.Name {
				continue
			}
			same := strings.HasPrefix(scaler.GetName(), name+"-")
			switch {
			case condition(scaler, "ScaleFailed") && same:
				failed++
				fallthrough
			case condition(scaler, "ScaleSucceeded", "ScaleFailed"):
				if same {
					ended++
				}
			case same:
				return "", ErrUnchanged
			default:
				return "", &BusyError{With: scaler.GetKind() + " " + scaler.GetName()}
			}
		}
	}
	if failed >= maxFailedScalers {
		return "", fmt.Errorf("et-operator failed %d times at %s", failed, name)
	}
	return name + "-" + strconv.Itoa(ended), nil
}

func (t *trainingJob) scale(ctx context.Context, resource schema.GroupVersionResource, kind, name string, job Job, spec map[string]any) error {
	spec["selector"] = map[string]any{"name": job.Name}
	scaler := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	scaler.SetAPIVersion(resource.GroupVersion().String())
	scaler.SetKind(kind)
	scaler.SetNamespace(job.Namespace)
	scaler.SetName(name)
	scaler.SetOwnerReferences([]metav1.OwnerReference{t.owner(job)})
	_, err := t.dynamic.Resource(resource).Namespace(job.Namespace).Create(ctx, scaler, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return ErrUnchanged // another of us was faster
	}
	return err
}

// owner is the reference by which the operator knows its scalers. It would set it itself, in two more writes.
func (t *trainingJob) owner(job Job) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: t.resource.GroupVersion().String(), Kind: t.kind, Name: job.Name, UID: job.UID,
		Controller: ptr.To(true),
	}
}

// scalerName is the same for the same change to the same workers of the same job.
func scalerName(job Job, direction string, what ...string) string {
	sum := sha256.Sum256([]byte(string(job.UID) + "\n" + strings.Join(what, "\n")))
	name := job.Name
	if len(name) > 40 { // a name of 63 is safe everywhere
		name = name[:40]
	}
	return fmt.Sprintf("%s-spot-%s-%s", strings.TrimRight(name, "-."), direction, hex.EncodeToString(sum[:5]))
}

// Suspend sets the annotation at which the operator ends all pods. The status of a job whose maximum wait is over is
// what the supervisor would have set, and what `arena list` shows.
func (t *trainingJob) Suspend(ctx context.Context, job Job, reason Reason) error {
	if suspended(job, reason) {
		return ErrUnchanged
	}
	metadata := t.held(job, HeldSuspended, reason)
	annotations := metadata["annotations"].(map[string]any)
	annotations[api.AnnotationSupervisorSuspended] = "true"
	if reason == ReasonMaxWait {
		annotations[api.AnnotationSupervisorStatus] = "timeout"
	}
	return t.patchJob(ctx, job, patch{"metadata": metadata})
}

// Resume starts the job anew with so many workers. Each of its steps may have been done before: the marks go last.
func (t *trainingJob) Resume(ctx context.Context, job Job, workers int) error {
	if heldAs(job) != HeldSuspended {
		return ErrUnchanged
	}
	phase, err := phase(job.Object, "phase")
	if err != nil {
		return err
	}
	if phase != trainingPhaseHeld && job.Suspended {
		return &BusyError{With: "et-operator, which has yet to suspend it"}
	}
	if phase == trainingPhaseHeld {
		if err := t.restart(ctx, job, workers); err != nil {
			return err
		}
	}
	metadata := released()
	if want := wanted(job); workers < want {
		metadata = t.held(job, HeldShrunk, ReasonReclaim) // the rest is for Grow
	}
	return t.patchJob(ctx, job, patch{"metadata": metadata})
}

func (t *trainingJob) restart(ctx context.Context, job Job, workers int) error {
	hosts := job.Name + "-config" // an old list of hosts would be kept
	err := t.client.CoreV1().ConfigMaps(job.Namespace).Delete(ctx, hosts, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ConfigMap %s: %w", hosts, err)
	}
	change := patch{
		"metadata": map[string]any{"annotations": map[string]any{api.AnnotationSupervisorSuspended: nil, api.AnnotationSupervisorStatus: nil}},
	}
	// The launcher is started when as many workers run as are asked for.
	setNested(change, min(max(workers, 1), job.Max), "spec", "etReplicaSpecs", "worker", "replicas")
	if err := t.patchJob(ctx, job, change); err != nil {
		return err
	}
	fresh := map[string]any{"active": nil, "succeeded": nil, "failed": nil}
	return t.patchJob(ctx, job, patch{"status": map[string]any{
		"phase": trainingPhaseCreated, "conditions": []any{}, "targetWorkers": nil, "currentWorkers": nil, "currentScaler": nil,
		"completionTime":  nil,
		"replicaStatuses": map[string]any{"Launcher": fresh, "Worker": fresh},
	}}, "status")
}

func values(list []string) []any {
	values := make([]any, len(list))
	for i, item := range list {
		values[i] = item
	}
	return values
}
