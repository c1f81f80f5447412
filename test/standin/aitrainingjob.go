package standin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
)

// AITrainingJobs are those of Baidu CCE.
var AITrainingJobs = schema.GroupVersionResource{Group: "kongming.cce.baiudbce.com", Version: "v1", Resource: "aitrainingjobs"}

const (
	// LabelAITrainingJob names the AITrainingJob of a pod.
	LabelAITrainingJob = "TrainingJobName"
	labelAIReplicaName = "TrainingJobReplicaName"
	labelAIIndex       = "TrainingJobReplicaIndex"
	labelAIRestarts    = "RestartCount"

	aiPending    = "Pending"
	aiRestarting = "Restarting"
	aiSucceeded  = "Succeed"

	exitOfSIGTERM = 128 + 15
)

type aiTrainingJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ReplicaSpecs map[string]aiReplicas `json:"replicaSpecs"`
	} `json:"spec"`
	Status aiTrainingJobStatus `json:"status"`
}

type aiReplicas struct {
	Replicas            int                    `json:"replicas"`
	RestartLimit        *int32                 `json:"restartLimit"`
	Template            corev1.PodTemplateSpec `json:"template"`
	FaultTolerantPolicy []struct {
		RestartPolicy    string `json:"restartPolicy"`
		ExitCodes        string `json:"exitCodes"`
		ExceptionalEvent string `json:"exceptionalEvent"`
	} `json:"faultTolerantPolicy"`
}

type aiTrainingJobStatus struct {
	Phase        string           `json:"phase"`
	RestartCount map[string]int32 `json:"RestartCount,omitempty"`
}

// NewAITrainingOperator plays Baidu CCE's AITrainingJob operator, after its published API and the elastic deep learning
// controller that it came from.
//
// A pod that failed with an exit code of the fault-tolerance policy is deleted and comes again under its name, which counts against
// restartLimit; any other failure is the job's. A pod that ran and is gone has failed by SIGTERM before, however short its grace period was. The job runs as soon as one pod of each role does, and succeeds when all of one
// role have. There is no way to suspend a job.
// Source: reconcilePods and reconcileContainers in pkg/controller/pod.go of elasticdeeplearning/trainingjob-operator at 148db3b.
//
// It has no services, no scopes of restart but the pod, and no scaling; that a node is not ready it does not notice.
func NewAITrainingOperator(config *rest.Config) (*Operator, error) {
	return newOperator("aitraining-operator", config, aiKinds)
}

func aiKinds(c cluster) []kind {
	return []kind{{AITrainingJobs, (&aiOperator{c, map[types.UID]sets.Set[string]{}}).reconcile}}
}

type aiOperator struct {
	cluster
	// ran are the names of each job's pods that ran when they were last seen: kubelets that do not run say of none that it failed.
	ran map[types.UID]sets.Set[string]
}

func (o *aiOperator) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[aiTrainingJob](object)
	if err != nil || job.Status.Phase == phaseFailed || job.Status.Phase == aiSucceeded {
		return err
	}
	pods, err := o.pods(ctx, job.Namespace, map[string]string{LabelAITrainingJob: job.Name})
	if err != nil {
		return err
	}
	o.noteRunning(job.UID, pods)
	create, remove := job.advance(pods, o.ran[job.UID])
	for _, name := range create {
		if err := o.create(ctx, job.newPod(object, name)); err != nil {
			return err
		}
	}
	if job.Status.Phase == phaseFailed {
		remove = values(pods)
	}
	if err := o.delete(ctx, metav1.DeleteOptions{}, remove...); err != nil {
		return err
	}
	return o.writeStatus(ctx, object, &job.Status)
}

// noteRunning notes the pods that run, and keeps those that are gone or on their way out since.
func (o *aiOperator) noteRunning(job types.UID, pods map[string]*corev1.Pod) {
	ran := sets.New[string]()
	for name := range o.ran[job] {
		if pod := pods[name]; pod == nil || failed(pod) && pod.DeletionTimestamp != nil {
			ran.Insert(name)
		}
	}
	for name, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning {
			ran.Insert(name)
		}
	}
	o.ran[job] = ran
}

// advance brings the status up to what the pods say and to those that ran, and returns what to create and to delete.
func (j *aiTrainingJob) advance(pods map[string]*corev1.Pod, ran sets.Set[string]) (create []string, remove []*corev1.Pod) {
	if j.Status.RestartCount == nil {
		j.Status.RestartCount = map[string]int32{}
	}
	all, down := true, false
	for _, role := range slices.Sorted(maps.Keys(j.Spec.ReplicaSpecs)) {
		spec := j.Spec.ReplicaSpecs[role]
		up, done := 0, 0
		for i := range spec.Replicas {
			name := fmt.Sprintf("%s-%s-%d", j.Name, role, i)
			pod := pods[name]
			switch {
			case pod == nil && ran.Has(name):
				if !j.restart(role, exitOfSIGTERM) {
					return nil, nil
				}
				create, down = append(create, name), true
			case pod == nil:
				create, down = append(create, name), true
			case running(pod):
				up++
			case succeeded(pod):
				done++
			case failed(pod) && pod.DeletionTimestamp == nil:
				if !j.restart(role, exitCodes(pod)...) {
					return nil, nil
				}
				remove, down = append(remove, pod), true
			}
		}
		all = all && up > 0
		if done > 0 && done == spec.Replicas {
			j.Status.Phase = aiSucceeded
			return nil, nil
		}
	}
	switch {
	case all:
		j.Status.Phase = phaseRunning
	case j.Status.Phase == phaseRunning && down:
		j.Status.Phase = aiRestarting
	case j.Status.Phase == "":
		j.Status.Phase = aiPending
	}
	return create, remove
}

// restart counts a restart for a pod that failed with these exit codes. If there is to be none, the job has failed.
func (j *aiTrainingJob) restart(role string, exitCodes ...int) bool {
	spec := j.Spec.ReplicaSpecs[role]
	if !spec.tolerates(exitCodes) || spec.RestartLimit != nil && j.Status.RestartCount[role] >= *spec.RestartLimit {
		j.Status.Phase = phaseFailed
		return false
	}
	j.Status.RestartCount[role]++
	return true
}

// tolerates says whether one of the exit codes is one that the policy names.
func (r *aiReplicas) tolerates(exitCodes []int) bool {
	for _, policy := range r.FaultTolerantPolicy {
		if !slices.Contains([]string{"ExitCode", "OnNodeFailWithExitCode"}, policy.RestartPolicy) {
			continue // others look at no exit code, and nobody here has OnFailure or Always
		}
		named := strings.Split(policy.ExitCodes, ",")
		if slices.ContainsFunc(exitCodes, func(code int) bool { return slices.Contains(named, strconv.Itoa(code)) }) {
			return true
		}
	}
	return false
}

func exitCodes(pod *corev1.Pod) (codes []int) {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			codes = append(codes, int(ended.ExitCode))
		}
	}
	return codes
}

func (j *aiTrainingJob) newPod(object *unstructured.Unstructured, name string) *corev1.Pod {
	dash := strings.LastIndexByte(name, '-')
	role, index := name[len(j.Name)+1:dash], name[dash+1:]
	pod := newPod(object, j.Spec.ReplicaSpecs[role].Template, name, map[string]string{
		LabelAITrainingJob: j.Name, "GroupName": AITrainingJobs.Group, "JobName": j.Name, "PodRole": role,
		labelAIReplicaName: role, labelAIIndex: index, labelAIRestarts: strconv.Itoa(int(j.Status.RestartCount[role])),
	})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

// writeStatus updates the whole object: the resource has no status of its own to write.
func (o *aiOperator) writeStatus(ctx context.Context, object *unstructured.Unstructured, status *aiTrainingJobStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil || fmt.Sprint(object.Object["status"]) == fmt.Sprint(fields) {
		return err
	}
	object.Object["status"] = fields
	_, err = o.objects.Resource(AITrainingJobs).Namespace(object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{})
	return err
}
