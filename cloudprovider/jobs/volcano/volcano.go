// Package volcano is the job system of Volcano: its own Job, known as vcjob.
package volcano

import (
	"context"
	"encoding/json"
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

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "vcjob"

const (
	labelJob   = "volcano.sh/job-name"
	labelTask  = "volcano.sh/task-spec"
	labelIndex = "volcano.sh/task-index"

	kind            = "Job"
	actionAbort     = "AbortJob"
	actionResume    = "ResumeJob"
	actionRestart   = "RestartJob"
	defaultMaxRetry = 3
	pathTasks       = "spec.tasks"
	// annotationGroup is on the pods, and names their PodGroup.
	annotationGroup = "scheduling.k8s.io/group-name"
)

var (
	resource = schema.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"}
	// Commands is the resource with which Volcano is told to abort and to resume a job.
	Commands = schema.GroupVersionResource{Group: "bus.volcano.sh", Version: "v1alpha1", Resource: "commands"}
)

// System is Volcano's Job.
//
// A lost pod is replaced, and training goes on with minAvailable pods. But where a policy restarts the job, or ends it, when a pod is
// evicted or fails, the loss of one is the loss of all: such a job is one gang. Volcano does not say which task is the launcher: it is
// known by its name.
//
// A job is suspended by a Command to abort it, and resumed by another, which Volcano counts as a retry. A job that Volcano
// would fail for that is not suspended.
type System struct{ cluster jobs.Cluster }

var (
	_ jobs.System    = (*System)(nil)
	_ jobs.Suspender = (*System)(nil)
	_ jobs.Grouper   = (*System)(nil)
)

// New returns the system.
func New(cluster jobs.Cluster) *System { return &System{cluster} }

// job is what is read of a Job.
type job struct {
	Spec struct {
		MinAvailable  jobs.Count  `json:"minAvailable"`
		MaxRetry      *jobs.Count `json:"maxRetry"`
		SchedulerName string      `json:"schedulerName"`
		Policies      []policy    `json:"policies"`
		Tasks         []*task     `json:"tasks"`
	} `json:"spec"`
	Status struct {
		State struct {
			Phase string `json:"phase"`
		} `json:"state"`
		RetryCount jobs.Count `json:"retryCount"`
	} `json:"status"`
}

type task struct {
	Name     string          `json:"name"`
	Replicas *jobs.Count     `json:"replicas"`
	Policies []policy        `json:"policies"`
	Template json.RawMessage `json:"template"`
	// MinAvailable is how many of them start together.
	MinAvailable *jobs.Count `json:"minAvailable"`

	path string
	role jobs.Role
}

func decode(object *unstructured.Unstructured) (*job, error) {
	job := &job{}
	if err := jobs.Decode(object, job); err != nil {
		return nil, err
	}
	if len(job.Spec.Tasks) == 0 {
		return nil, jobs.Missing(pathTasks)
	}
	for i, task := range job.Spec.Tasks {
		path := fmt.Sprintf("%s[%d]", pathTasks, i)
		if task == nil {
			return nil, jobs.Missing(path)
		}
		if task.Name == "" {
			task.Name = "default" + strconv.Itoa(i)
		}
		task.path, task.role = path+".template", jobs.RoleOf(task.Name)
	}
	return job, nil
}

func (*System) Name() string                          { return Name }
func (*System) Resource() schema.GroupVersionResource { return resource }

func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, resource.Group, kind)
	if owner == nil {
		return "", "", false
	}
	return owner.Name, jobs.RoleOf(pod.Labels[labelTask]), true
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	job, err := decode(object)
	if err != nil {
		return jobs.Job{}, err
	}
	replicas, launchers := 0, 0
	for _, task := range job.Spec.Tasks {
		if task.role == jobs.RoleLauncher {
			launchers += task.Replicas.Or(1)
			continue
		}
		replicas += task.Replicas.Or(1)
	}
	phase := job.Status.State.Phase
	read := jobs.Job{
		Min: replicas, Max: replicas, Replicas: replicas,
		Suspended: phase == "Aborting" || phase == "Aborted",
		Finished:  slices.Contains([]string{"Completing", "Completed", "Terminating", "Terminated", "Failed"}, phase),
	}
	read.Floor = replicas - job.mayLose(replicas)
	if available := job.Spec.MinAvailable.Int(); available > 0 {
		read.Min = min(max(available-launchers, read.Floor), replicas)
	}
	return read, nil
}

// PodSets gives hosts their share of the workers first.
func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	job, err := decode(of.Object)
	if err != nil {
		return nil, err
	}
	tasks := job.Spec.Tasks
	slices.SortStableFunc(tasks, func(a, b *task) int { return strings.Compare(string(a.role), string(b.role)) })
	var sets []jobs.PodSet
	for _, task := range tasks {
		count := task.Replicas.Or(1)
		if task.role != jobs.RoleLauncher {
			count = min(count, workers)
			workers -= count
		}
		sets = append(sets, jobs.PodSet{
			Path: task.path, Template: task.Template, Count: count, Role: task.role, NamePrefix: of.Name + "-" + task.Name,
			SchedulerName: job.Spec.SchedulerName,
			Labels: func(i int) map[string]string {
				return map[string]string{labelJob: of.Name, labelTask: task.Name, labelIndex: strconv.Itoa(i)}
			},
		})
	}
	return sets, nil
}

// Group returns the PodGroup of the job. The UID of the job at the end of its name is not known before the job exists. Without minAvailable,
// Volcano's webhook writes the sum of those of the tasks.
// Source: createOrUpdatePodGroup in pkg/controllers/job/job_controller_actions.go, and patchDefaultMinAvailable in
// pkg/webhooks/admission/jobs/mutate/mutate_job.go, of volcano.sh/volcano.
func (*System) Group(of jobs.Job, pods []*corev1.Pod) (*unstructured.Unstructured, error) {
	job, err := decode(of.Object)
	if err != nil {
		return nil, err
	}
	least := job.Spec.MinAvailable.Int()
	if least == 0 {
		for _, task := range job.Spec.Tasks {
			least += task.MinAvailable.Or(task.Replicas.Or(1))
		}
	}
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(least)}}}
	group.SetAPIVersion("scheduling.volcano.sh/v1beta1")
	group.SetKind("PodGroup")
	group.SetNamespace(of.Namespace)
	group.SetName(of.Name)
	for _, pod := range pods {
		pod.Annotations[annotationGroup] = of.Name
	}
	return group, nil
}

// Suspend writes the held label, then has Volcano abort it.
func (s *System) Suspend(ctx context.Context, of jobs.Job, reason jobs.HoldReason) (changed bool, err error) {
	if !of.NeedsSuspend(reason) {
		return false, nil
	}
	job, err := decode(of.Object)
	if err != nil {
		return false, err
	}
	if !of.Suspended {
		if err := job.checkRetries(); err != nil {
			return false, err
		}
	}
	if err := s.cluster.PatchJob(ctx, resource, of, s.cluster.HoldPatch(of, jobs.HeldSuspended, reason)); err != nil {
		return false, err
	}
	if !of.Suspended { // else it is suspended for another reason
		err = s.command(ctx, of, actionAbort, job.Status.RetryCount)
	}
	return err == nil, err
}

// checkRetries fails where Volcano would not start the job again. It does where a retry is left after this one.
func (j *job) checkRetries() error {
	spent, limit := j.Status.RetryCount.Int(), j.Spec.MaxRetry.Or(defaultMaxRetry)
	if spent+1 >= limit {
		return fmt.Errorf("%d of %d retries are spent, and it would take the last to resume it: %w", spent, limit, jobs.ErrUnsupported)
	}
	return nil
}

// Resume has Volcano restart the job, then removes the held label.
func (s *System) Resume(ctx context.Context, of jobs.Job, _ int) (changed bool, err error) {
	if of.HeldAs() != jobs.HeldSuspended {
		return false, nil
	}
	if of.Suspended {
		job, err := decode(of.Object)
		if err != nil {
			return false, err
		}
		if err := s.command(ctx, of, actionResume, job.Status.RetryCount); err != nil {
			return false, err
		}
	}
	err = s.cluster.Unhold(ctx, resource, of, jobs.UnholdPatch())
	return err == nil, err
}

// command makes a Command, which Volcano deletes when it obeys. Its name is the same for the same run of the job.
func (s *System) command(ctx context.Context, of jobs.Job, action string, run jobs.Count) error {
	apiVersion := resource.GroupVersion().String()
	command := &unstructured.Unstructured{Object: map[string]any{
		"action": action,
		"target": map[string]any{"apiVersion": apiVersion, "kind": kind, "name": of.Name, "uid": string(of.UID), "controller": true},
		"reason": "SpotReclaim", "message": "Asked for by gpu-spot-autoscaler",
	}}
	command.SetAPIVersion(Commands.GroupVersion().String())
	command.SetKind("Command")
	command.SetNamespace(of.Namespace)
	command.SetName(fmt.Sprintf("%s-spot-%s-%d", of.Name, strings.ToLower(action), run))
	command.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: of.Name, UID: of.UID, Controller: ptr.To(true)}})
	_, err := s.cluster.Dynamic.Resource(Commands).Namespace(of.Namespace).Create(ctx, command, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // Volcano has yet to obey it
	}
	return err
}
