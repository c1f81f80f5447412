package standin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Resources of Volcano.
var (
	VolcanoJobs     = schema.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"}
	VolcanoCommands = schema.GroupVersionResource{Group: "bus.volcano.sh", Version: "v1alpha1", Resource: "commands"}
)

const (
	// LabelVolcanoJob names the Volcano job of a pod.
	LabelVolcanoJob  = "volcano.sh/job-name"
	labelVolcanoTask = "volcano.sh/task-spec"
	labelTaskIndex   = "volcano.sh/task-index"
	jobVersion       = "volcano.sh/job-version"

	phasePending       = "Pending"
	volcanoAborting    = "Aborting"
	volcanoAborted     = "Aborted"
	volcanoRestarting  = "Restarting"
	volcanoTerminating = "Terminating"
	volcanoTerminated  = "Terminated"
	volcanoCompleting  = "Completing"
	volcanoCompleted   = "Completed"

	actionAbort     = "AbortJob"
	actionResume    = "ResumeJob"
	actionRestart   = "RestartJob"
	actionTerminate = "TerminateJob"
	actionComplete  = "CompleteJob"

	eventEvicted = "PodEvicted"
	eventFailed  = "PodFailed"

	defaultMaxRetry = 3
)

type volcanoJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		MinAvailable int             `json:"minAvailable"`
		MaxRetry     *int32          `json:"maxRetry"`
		Policies     []volcanoPolicy `json:"policies"`
		Tasks        []struct {
			Name     string                 `json:"name"`
			Replicas int                    `json:"replicas"`
			Policies []volcanoPolicy        `json:"policies"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"tasks"`
	} `json:"spec"`
	Status volcanoStatus `json:"status"`
}

type volcanoPolicy struct {
	Event  string   `json:"event"`
	Events []string `json:"events"`
	Action string   `json:"action"`
}

func (p *volcanoPolicy) concerns(event string) bool {
	return p.Event == event || p.Event == "*" || slices.Contains(p.Events, event)
}

type volcanoStatus struct {
	State struct {
		Phase string `json:"phase,omitempty"`
	} `json:"state"`
	Running    int32 `json:"running,omitempty"`
	Version    int32 `json:"version,omitempty"`
	RetryCount int32 `json:"retryCount,omitempty"`
}

// NewVolcano plays the job controller of Volcano (github.com/volcano-sh/volcano).
//
// A pod that is lost comes again under its name, unless a policy for PodEvicted or PodFailed restarts, aborts, terminates or completes the
// whole job. Commands do so, too, and resume one that is aborted. To be restarted or resumed counts as a retry, and a job has three. One
// that was terminated or completed has ended, whatever pods are left.
//
// It makes no pod groups and leaves the pods to the default scheduler. It knows minAvailable only as what a job needs to be running, and
// no actions on single pods or tasks, no exit codes and no time-outs of policies.
func NewVolcano(config *rest.Config) (*Operator, error) {
	return newOperator("volcano", config, volcanoKinds)
}

func volcanoKinds(c cluster) []kind {
	v := &volcano{cluster: c, made: map[types.UID]sets.Set[string]{}, orders: map[types.NamespacedName]string{}}
	return []kind{{VolcanoCommands, v.obey}, {VolcanoJobs, v.reconcile}}
}

type volcano struct {
	cluster
	// made are the names of the pods of each job's version, by which a pod that is lost is told from one that is to come.
	made map[types.UID]sets.Set[string]
	// orders are actions that a command asked for.
	orders map[types.NamespacedName]string
}

// obey deletes the command, so that it is executed once, and notes it.
func (o *volcano) obey(ctx context.Context, object *unstructured.Unstructured) error {
	action, _, _ := unstructured.NestedString(object.Object, "action")
	target, _, _ := unstructured.NestedString(object.Object, "target", "name")
	if err := o.objects.Resource(VolcanoCommands).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
		return err
	}
	o.orders[types.NamespacedName{Namespace: object.GetNamespace(), Name: target}] = action
	return nil
}

func (o *volcano) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[volcanoJob](object)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: job.Namespace, Name: job.Name}
	pods, err := o.pods(ctx, job.Namespace, map[string]string{LabelVolcanoJob: job.Name})
	if err != nil {
		return err
	}
	action := o.orders[key]
	if action == "" {
		action = job.reaction(o.made[job.UID], pods)
	}
	kill := job.execute(action, pods)
	if err := o.setStatus(ctx, VolcanoJobs, object, &job.Status); err != nil {
		return err // with the order still to be carried out
	}
	delete(o.orders, key)
	if kill {
		delete(o.made, job.UID)
		return o.delete(ctx, metav1.DeleteOptions{}, slices.DeleteFunc(values(pods), ended)...)
	}
	if job.Status.State.Phase != phasePending && job.Status.State.Phase != phaseRunning {
		return nil
	}
	return o.sync(ctx, object, &job, pods)
}

// reaction is what the policies have to say of the pods that were lost.
func (j *volcanoJob) reaction(made sets.Set[string], pods map[string]*corev1.Pod) string {
	for _, task := range j.Spec.Tasks {
		for i := range task.Replicas {
			name, event := j.podName(task.Name, i), ""
			switch pod := pods[name]; {
			case made.Has(name) && pod == nil:
				event = eventEvicted
			case failed(pod):
				event = eventFailed
			default:
				continue
			}
			for _, policy := range append(slices.Clone(task.Policies), j.Spec.Policies...) {
				if policy.concerns(event) {
					return policy.Action
				}
			}
		}
	}
	return ""
}

// stops are what an action makes of a job that is pending or running, and ends of one whose pods are being killed, once they are gone.
// Source: Execute in running.go, pending.go, aborting.go, terminating.go and completing.go, pkg/controllers/job/state of Volcano, at
// ed72c7c.
var (
	stops = map[string]string{actionAbort: volcanoAborting, actionTerminate: volcanoTerminating, actionComplete: volcanoCompleting}
	ends  = map[string]string{volcanoAborting: volcanoAborted, volcanoTerminating: volcanoTerminated, volcanoCompleting: volcanoCompleted}
)

// execute changes the phase, and says whether the pods are to be killed: always, once the job has ended. A resumed job counts a retry.
// Source: Execute in aborted.go and finished.go, pkg/controllers/job/state of Volcano, at ed72c7c.
func (j *volcanoJob) execute(action string, pods map[string]*corev1.Pod) (kill bool) {
	s := &j.Status
	s.Running = int32(count(pods, running))
	active := s.State.Phase == "" || s.State.Phase == phasePending || s.State.Phase == phaseRunning
	switch {
	case active && stops[action] != "":
		s.State.Phase = stops[action]
	case active && action == actionRestart, s.State.Phase == volcanoAborting && action == actionResume, s.State.Phase == volcanoAborted && action == actionResume:
		s.State.Phase = volcanoRestarting
		s.RetryCount++
	case ends[s.State.Phase] != "":
		if len(pods) == count(pods, ended) {
			s.State.Phase = ends[s.State.Phase]
		}
		return true
	case s.State.Phase == volcanoRestarting:
		j.restart(pods)
		return true
	case s.State.Phase == "":
		s.State.Phase = phasePending
		return false
	case active:
		j.follow(pods)
		return false
	default:
		return true
	}
	s.Version++
	return true
}

// restart waits until the pods are gone.
func (j *volcanoJob) restart(pods map[string]*corev1.Pod) {
	switch {
	case j.Status.RetryCount >= ptr.Deref(j.Spec.MaxRetry, defaultMaxRetry):
		j.Status.State.Phase = phaseFailed
	case len(pods) == 0:
		j.Status.State.Phase = phasePending
	}
}

func (j *volcanoJob) follow(pods map[string]*corev1.Pod) {
	total := 0
	for _, task := range j.Spec.Tasks {
		total += task.Replicas
	}
	well, badly := count(pods, succeeded), count(pods, failed)
	switch {
	case total > 0 && well+badly == total && well >= j.Spec.MinAvailable:
		j.Status.State.Phase = volcanoCompleted
	case total > 0 && well+badly == total:
		j.Status.State.Phase = phaseFailed
	case count(pods, running)+well+badly >= j.Spec.MinAvailable:
		j.Status.State.Phase = phaseRunning
	default:
		j.Status.State.Phase = phasePending
	}
}

func (j *volcanoJob) podName(task string, index int) string {
	return fmt.Sprintf("%s-%s-%d", j.Name, task, index)
}

// sync makes the pods that are missing.
func (o *volcano) sync(ctx context.Context, object *unstructured.Unstructured, job *volcanoJob, pods map[string]*corev1.Pod) error {
	for _, task := range job.Spec.Tasks {
		for i := range task.Replicas {
			name := job.podName(task.Name, i)
			if pods[name] != nil {
				continue
			}
			labels := map[string]string{LabelVolcanoJob: job.Name, labelVolcanoTask: task.Name, labelTaskIndex: strconv.Itoa(i)}
			pod := newPod(object, task.Template, name, labels)
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			maps.Copy(pod.Annotations, labels)
			pod.Annotations[jobVersion] = strconv.Itoa(int(job.Status.Version))
			if err := o.create(ctx, pod); err != nil {
				return err
			}
		}
	}
	made := sets.New[string]()
	for _, task := range job.Spec.Tasks {
		for i := range task.Replicas {
			made.Insert(job.podName(task.Name, i))
		}
	}
	o.made[job.UID] = made
	return nil
}
