package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

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
	trainingPhaseRunning = "Running"
	trainingPhaseScaling = "Scaling"
	trainingPhaseHeld    = "Suspended"
	// scaleOutTimeout in seconds is how long the operator waits for the new workers. It does nothing else for the job in that
	// time, so that more would keep a ScaleIn for the next reclaim waiting until it is too late.
	scaleOutTimeout = 300
)

// workerReplicas is how many workers a job starts with.
var workerReplicas = []string{"spec", "etReplicaSpecs", "worker", "replicas"}

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
	if object.GetLabels()[api.LabelHeld] == HeldShrunk {
		if job.Replicas, err = lasting(object, worker, targets, job.Replicas); err != nil {
			return Job{}, err
		}
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
	job.ToldToStop = object.GetAnnotations()[api.AnnotationStopRequested] != ""
	job.Stopped = phase == "Failed" && stopped(object)
	job.Finished = phase == "Succeeded" || (phase == "Failed" && !restarts(object) && !job.Stopped)
	return job, nil
}

// lasting is how many of the workers that the operator takes for the job's are there, or will be: one that was lost other than
// by a ScaleIn stays among them, and is made anew only where the workers' restartPolicy is Always.
func lasting(object *unstructured.Unstructured, worker fields, targets []string, otherwise int) (int, error) {
	status, err := fieldsOf(object).maybe("status")
	if err != nil {
		return 0, err
	}
	current, err := status.strings("currentWorkers")
	if err != nil {
		return 0, err
	}
	phase, err := status.text("phase")
	if err != nil {
		return 0, err
	}
	policy, err := worker.text("restartPolicy")
	if err != nil || policy == "Always" || phase != trainingPhaseRunning || len(current) == 0 {
		return otherwise, err
	}
	return len(inBoth(targets, current)), nil
}

// counted has the job's Replicas be what is to be remembered of it: without the workers that it lost before, for which others
// were added, but no fewer than it asks for.
func counted(job Job) (Job, error) {
	worker, err := fieldsOf(job.Object).section("spec", "etReplicaSpecs", "worker")
	if err != nil {
		return job, err
	}
	asked, err := worker.count("replicas", 1)
	if err != nil {
		return job, err
	}
	targets, err := targetWorkers(job.Object)
	if err != nil {
		return job, err
	}
	last, err := lasting(job.Object, worker, targets, job.Replicas)
	job.Replicas = min(job.Replicas, max(last, asked))
	return job, err
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
	next, err := t.nextScaler(ctx, job, name, leaving...)
	if err != nil {
		return err
	}
	if job, err = counted(job); err != nil {
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
	// A job that was restarted meanwhile has all its workers, and would get more of them.
	if err := t.deleteScalers(ctx, job.NamespacedName, func(s scaler) bool { return s.resource == scaleOuts && !s.begun() }); err != nil {
		return err
	}
	if _, err := t.nextScaler(ctx, job, "release"); err != nil {
		return err // a ScaleIn that has yet to begin will take workers off, and the marks are what remembers them
	}
	change := patch{"metadata": begunAnew()}
	if asked, _, _ := unstructured.NestedInt64(job.Object.Object, workerReplicas...); int(asked) < wanted(job) {
		setNested(change, wanted(job), workerReplicas...) // fewer were asked for when it was resumed
	}
	return t.patchJob(ctx, job, change)
}

// Suspend sets the annotation at which the operator ends all pods. The status of a job whose maximum wait is over is
// what the supervisor would have set, and what `arena list` shows.
func (t *trainingJob) Suspend(ctx context.Context, job Job, reason Reason) error {
	if suspended(job, reason) {
		return ErrUnchanged
	}
	job, err := counted(job)
	if err != nil {
		return err
	}
	metadata := t.held(job, HeldSuspended, reason)
	annotations := metadata["annotations"].(map[string]any)
	annotations[api.AnnotationSupervisorSuspended] = "true"
	if reason == ReasonMaxWait {
		annotations[api.AnnotationSupervisorStatus] = "timeout"
	}
	if err := t.deleteScalers(ctx, job.NamespacedName, anyScaler); err != nil {
		// The job is better suspended all the same: a suspended job takes none up, and Resume removes them first.
		klog.FromContext(ctx).Error(err, "Scalers outlive the suspension of their job", "job", job.Ref)
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
	metadata := begunAnew()
	if job.ToldToStop && phase != trainingPhaseHeld {
		workers = min(workers, job.Replicas) // it went on in spite of that, with what was left of it
	}
	if want := wanted(job); workers < want {
		marks := t.held(job, HeldShrunk, ReasonReclaim) // the rest is for Grow
		metadata["labels"] = marks["labels"]
		maps.Copy(metadata["annotations"].(map[string]any), marks["annotations"].(map[string]any))
	}
	return t.patchJob(ctx, job, patch{"metadata": metadata})
}

// begunAnew takes the marks off, that it was told to stop among them: the metadata of a patch.
func begunAnew() map[string]any {
	metadata := released()
	annotations := metadata["annotations"].(map[string]any)
	annotations[api.AnnotationStopRequested], annotations[api.AnnotationHeldRestarts] = nil, nil
	return metadata
}

// anyScaler chooses them all: what was made for the workers of one life of a job is not for those of the next.
func anyScaler(scaler) bool { return true }

func (t *trainingJob) restart(ctx context.Context, job Job, workers int) error {
	if err := t.deleteScalers(ctx, job.NamespacedName, anyScaler); err != nil {
		return err
	}
	hosts := job.Name + "-config" // an old list of hosts would be kept
	err := t.client.CoreV1().ConfigMaps(job.Namespace).Delete(ctx, hosts, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ConfigMap %s: %w", hosts, err)
	}
	change := patch{
		"metadata": map[string]any{"annotations": map[string]any{api.AnnotationSupervisorSuspended: nil, api.AnnotationSupervisorStatus: nil}},
	}
	// The launcher is started when as many workers run as are asked for.
	setNested(change, min(max(workers, 1), job.Max), workerReplicas...)
	if err := t.patchJob(ctx, job, change); err != nil {
		return err
	}
	fresh := map[string]any{"active": nil, "succeeded": nil, "failed": nil}
	status := map[string]any{
		"phase": trainingPhaseCreated, "conditions": []any{}, "targetWorkers": nil, "currentWorkers": nil, "currentScaler": nil,
		"completionTime":  nil,
		"replicaStatuses": map[string]any{"Launcher": fresh, "Worker": fresh},
	}
	if restarts, err := strconv.Atoi(job.Object.GetAnnotations()[api.AnnotationHeldRestarts]); err == nil && restarts >= 0 {
		status["restartCount"] = restarts // that it stopped was no failure of its own
	}
	return t.patchJob(ctx, job, patch{"status": status}, "status")
}

func values(list []string) []any {
	values := make([]any, len(list))
	for i, item := range list {
		values[i] = item
	}
	return values
}
