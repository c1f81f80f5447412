package jobs

import (
	"context"
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
)

const (
	labelVolcanoJob   = "volcano.sh/job-name"
	labelVolcanoTask  = "volcano.sh/task-spec"
	labelVolcanoIndex = "volcano.sh/task-index"
	volcanoGroup      = "batch.volcano.sh"
	abortJob          = "AbortJob"
	resumeJob         = "ResumeJob"
	volcanoMaxRetry   = 3 // where maxRetry is missing
)

var volcanoCommands = schema.GroupVersionResource{Group: "bus.volcano.sh", Version: "v1alpha1", Resource: "commands"}

// volcano is Volcano's Job.
//
// A pod that is lost is made anew, and training goes on with minAvailable pods; but with a policy that restarts the job
// when a pod is evicted or fails, the loss of one is the loss of all, and costs one of maxRetry: such a job is one
// gang. Volcano has no word for launchers: it goes by the name of the task.
//
// It is suspended by a Command to abort it, and resumed by another, which Volcano counts as a retry. A job that it
// would fail for that is not suspended.
type volcano struct{ *system }

func newVolcano(c *cluster) Adapter {
	return &volcano{&system{
		cluster: c, name: "vcjob", kind: "Job",
		resource: schema.GroupVersionResource{Group: volcanoGroup, Version: "v1alpha1", Resource: "jobs"},
	}}
}

func (v *volcano) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelVolcanoJob]
	if name == "" {
		return Membership{}, false
	}
	return Membership{Ref: v.ref(pod.Namespace, name), Role: roleNamed(pod.Labels[labelVolcanoTask])}, true
}

// volcanoTask is one entry of spec.tasks.
type volcanoTask struct {
	name     string
	role     Role
	replicas int
	fields
}

func volcanoTasks(spec fields) ([]volcanoTask, error) {
	list, err := spec.list("tasks")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, spec.errorf("tasks", "is missing")
	}
	tasks := make([]volcanoTask, 0, len(list))
	for i, item := range list {
		task := volcanoTask{fields: item}
		if task.name, err = item.text("name"); err != nil {
			return nil, err
		}
		if task.name == "" {
			task.name = "default" + strconv.Itoa(i)
		}
		if task.replicas, err = item.count("replicas", 1); err != nil {
			return nil, err
		}
		task.role = roleNamed(task.name)
		tasks = append(tasks, task)
	}
	return tasks, nil
}

func (v *volcano) Read(object *unstructured.Unstructured) (Job, error) {
	spec, err := fieldsOf(object).section("spec")
	if err != nil {
		return Job{}, err
	}
	tasks, err := volcanoTasks(spec)
	if err != nil {
		return Job{}, err
	}
	var job Job
	launchers := 0
	together, err := restartsOnLoss(spec)
	if err != nil {
		return Job{}, err
	}
	for _, task := range tasks {
		if task.role == RoleLauncher {
			launchers += task.replicas
			continue
		}
		job.Replicas += task.replicas
		restarts, err := restartsOnLoss(task.fields)
		if err != nil {
			return Job{}, err
		}
		together = together || restarts
	}
	job.Min, job.Max = job.Replicas, job.Replicas
	available, err := spec.count("minAvailable", 0)
	if err != nil {
		return Job{}, err
	}
	if available > 0 && !together {
		job.Min = min(max(available-launchers, 0), job.Replicas)
	}
	phase, err := phase(object, "state", "phase")
	job.Suspended = phase == "Aborting" || phase == "Aborted"
	job.Finished = slices.Contains([]string{"Completing", "Completed", "Terminating", "Terminated", "Failed"}, phase)
	return job, err
}

// restartsOnLoss says whether a policy of the job or of a task restarts the job when one of its pods is evicted, or fails.
func restartsOnLoss(holder fields) (bool, error) {
	policies, err := holder.list("policies")
	if err != nil {
		return false, err
	}
	for _, policy := range policies {
		action, err := policy.text("action")
		if err != nil {
			return false, err
		}
		events, err := policy.strings("events")
		if err != nil {
			return false, err
		}
		event, err := policy.text("event")
		if err != nil {
			return false, err
		}
		for _, event := range append(events, event) {
			if action == "RestartJob" && slices.Contains([]string{"*", "PodEvicted", "PodFailed"}, event) {
				return true, nil
			}
		}
	}
	return false, nil
}

func (v *volcano) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	spec, err := object.section("spec")
	if err != nil {
		return nil, err
	}
	tasks, err := volcanoTasks(spec)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(tasks, func(a, b volcanoTask) int { // hosts take their share of the workers first
		return strings.Compare(string(a.role), string(b.role))
	})
	scheduler, err := spec.text("schedulerName")
	if err != nil {
		return nil, err
	}
	var groups []replicaGroup
	for _, task := range tasks {
		template, err := task.section("template")
		if err != nil {
			return nil, err
		}
		if task.role != RoleLauncher {
			task.replicas = min(task.replicas, workers)
			workers -= task.replicas
		}
		groups = append(groups, replicaGroup{
			template: template, replicas: task.replicas, role: task.role, name: numbered(job.Name + "-" + task.name),
			labels: func(i int) map[string]string {
				return map[string]string{labelVolcanoJob: job.Name, labelVolcanoTask: task.name, labelVolcanoIndex: strconv.Itoa(i)}
			},
		})
	}
	slices.SortStableFunc(groups, byRole)
	pods, err := gang(job, room, groups...)
	for _, pod := range pods {
		if scheduler != "" && pod.Spec.SchedulerName == corev1.DefaultSchedulerName {
			pod.Spec.SchedulerName = scheduler
		}
	}
	return pods, err
}

// Suspend marks the job, then has Volcano abort it.
func (v *volcano) Suspend(ctx context.Context, job Job, reason Reason) error {
	if suspended(job, reason) {
		return ErrUnchanged
	}
	if !job.Suspended {
		if err := v.canResume(job); err != nil {
			return err
		}
	}
	if err := v.patchJob(ctx, job, patch{"metadata": v.held(job, HeldSuspended, reason)}); err != nil {
		return err
	}
	if job.Suspended { // for another reason
		return nil
	}
	return v.command(ctx, job, abortJob)
}

// canResume says whether Volcano would start the job again, which is when a retry is left after this one.
func (v *volcano) canResume(job Job) error {
	spec, err := fieldsOf(job.Object).section("spec")
	if err != nil {
		return err
	}
	retries, err := spec.count("maxRetry", volcanoMaxRetry)
	if err != nil {
		return err
	}
	status, err := fieldsOf(job.Object).maybe("status")
	if err != nil {
		return err
	}
	spent, err := status.count("retryCount", 0)
	if err != nil {
		return err
	}
	if spent+1 >= retries {
		return fmt.Errorf("%d of %d retries are spent, and it would take the last to resume it: %w", spent, retries, ErrUnsupported)
	}
	return nil
}

// Resume has Volcano restart the job, then takes the marks off.
func (v *volcano) Resume(ctx context.Context, job Job, _ int) error {
	if heldAs(job) != HeldSuspended {
		return ErrUnchanged
	}
	if job.Suspended {
		if err := v.command(ctx, job, resumeJob); err != nil {
			return err
		}
	}
	return v.patchJob(ctx, job, patch{"metadata": released()})
}

// command makes a Command, which Volcano deletes when it obeys. Its name is the same for the same life of the job.
func (v *volcano) command(ctx context.Context, job Job, action string) error {
	status, err := fieldsOf(job.Object).maybe("status")
	if err != nil {
		return err
	}
	life, err := status.count("retryCount", 0)
	if err != nil {
		return err
	}
	owner := map[string]any{
		"apiVersion": v.resource.GroupVersion().String(), "kind": v.kind, "name": job.Name, "uid": string(job.UID),
		"controller": true,
	}
	command := &unstructured.Unstructured{Object: map[string]any{
		"action": action, "target": owner,
		"reason": "SpotReclaim", "message": "Asked for by gpu-spot-autoscaler",
	}}
	command.SetAPIVersion(volcanoCommands.GroupVersion().String())
	command.SetKind("Command")
	command.SetNamespace(job.Namespace)
	command.SetName(fmt.Sprintf("%s-spot-%s-%d", job.Name, strings.ToLower(action), life))
	command.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v.resource.GroupVersion().String(), Kind: v.kind, Name: job.Name, UID: job.UID,
		Controller: ptr.To(true),
	}})
	_, err = v.dynamic.Resource(volcanoCommands).Namespace(job.Namespace).Create(ctx, command, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // it is on its way
	}
	return err
}
