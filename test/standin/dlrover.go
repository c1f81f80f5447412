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
	"k8s.io/client-go/rest"
)

// ElasticJobs are those of DLRover.
var ElasticJobs = schema.GroupVersionResource{Group: "elastic.iml.github.io", Version: "v1alpha1", Resource: "elasticjobs"}

const (
	// LabelElasticJob names the ElasticJob of a pod.
	LabelElasticJob = "elasticjob.dlrover/name"
	// LabelRelaunchCount is how often a rank of an ElasticJob was launched anew.
	LabelRelaunchCount = "elasticjob.dlrover/relaunch-count"

	labelDLRoverType  = "elasticjob.dlrover/replica-type"
	labelDLRoverIndex = "elasticjob.dlrover/replica-index"
	labelDLRoverRank  = "elasticjob.dlrover/rank-index"
	typeMaster        = "dlrover-master"
	maxRelaunches     = 3
)

type elasticJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend      bool `json:"suspend"`
		ReplicaSpecs map[string]struct {
			Replicas int                    `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"replicaSpecs"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status"`
}

// NewDLRover plays DLRover's operator and the master that it starts for each job
// (github.com/intelligent-machine-learning/dlrover).
//
// The master's pod comes first, if the job has a template for it. A pod that is lost is launched anew at once under a new
// index, with the same rank, and this counts; one that failed by itself is launched anew unless it counts three, and the
// job fails with it if it does. While spec.suspend is set no pods are made; those that are there stay, and so does the
// phase.
//
// There is no training, no scaling and no brain, and what a master knows is lost with the process, not with its pod.
func NewDLRover(config *rest.Config) (*Operator, error) {
	return newOperator("dlrover", config, dlroverKinds)
}

func dlroverKinds(c cluster) []kind {
	return []kind{{ElasticJobs, (&dlrover{c, map[types.UID]ranks{}}).reconcile}}
}

type dlrover struct {
	cluster
	masters map[types.UID]ranks
}

// ranks is what a master knows of the pods of its job, by type.
type ranks map[string][]rank

// rank is one place in a job.
type rank struct {
	// pod is the index of the pod that holds it.
	pod, relaunches int
	// lost is for good, done is well.
	lost, done bool
}

func (o *dlrover) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[elasticJob](object)
	if err != nil {
		return err
	}
	if job.Status.Phase == phaseSucceeded || job.Status.Phase == phaseFailed {
		return nil
	}
	pods, err := o.pods(ctx, job.Namespace, map[string]string{LabelElasticJob: job.Name})
	if err != nil {
		return err
	}
	known := o.masters[job.UID]
	if known == nil {
		known = ranks{}
		o.masters[job.UID] = known
	}
	create := known.advance(&job, pods)
	job.Status.Phase = known.phase(&job, pods)
	for _, node := range create {
		if err := o.create(ctx, newNode(object, &job, node)); err != nil {
			return err
		}
	}
	if job.Status.Phase == phaseFailed {
		if err := o.delete(ctx, metav1.DeleteOptions{}, values(pods)...); err != nil {
			return err
		}
	}
	return o.setStatus(ctx, ElasticJobs, object, &job.Status)
}

// node is a pod that the master wants.
type node struct {
	kind                    string
	index, rank, relaunches int
}

func (n node) name(job string) string {
	if n.kind == typeMaster {
		return fmt.Sprintf("elasticjob-%s-%s", job, typeMaster)
	}
	return fmt.Sprintf("%s-edljob-%s-%d", job, n.kind, n.index)
}

// advance takes note of the pods, and returns those to create.
func (r ranks) advance(job *elasticJob, pods map[string]*corev1.Pod) (create []node) {
	for _, kind := range slices.Sorted(maps.Keys(job.Spec.ReplicaSpecs)) {
		replicas := job.Spec.ReplicaSpecs[kind].Replicas
		if kind == typeMaster {
			replicas = 1
		}
		known, next := r[kind], r.next(kind)
		for i := range replicas {
			if i >= len(known) {
				known = append(known, rank{pod: next, relaunches: -1})
				next++
			}
			at := &known[i]
			pod := pods[node{kind: kind, index: at.pod}.name(job.Name)]
			switch {
			case at.lost || at.done || pod != nil && !ended(pod), kind == typeMaster && pod != nil:
				continue
			case succeeded(pod):
				at.done = true
				continue
			case failed(pod) && !terminated(pod) && at.relaunches >= maxRelaunches:
				at.lost = true
				continue
			case job.Spec.Suspend:
				continue
			}
			if at.relaunches++; at.relaunches > 0 && kind != typeMaster {
				at.pod = next
				next++
			}
			create = append(create, node{kind, at.pod, i, at.relaunches})
		}
		r[kind] = known
	}
	return create
}

// next is an index that no pod of the kind ever had.
func (r ranks) next(kind string) (next int) {
	for _, at := range r[kind] {
		next = max(next, at.pod+1)
	}
	return next
}

// terminated says that the pod was told to end, or killed. Such an end counts, but is never held against it.
func terminated(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && (s.State.Terminated.ExitCode == 137 || s.State.Terminated.ExitCode == 143)
	})
}

func (r ranks) phase(job *elasticJob, pods map[string]*corev1.Pod) string {
	workers := r[roleWorker]
	done := 0
	for _, at := range workers {
		if at.lost {
			return phaseFailed
		}
		if at.done {
			done++
		}
	}
	switch {
	case len(workers) > 0 && done == len(workers):
		return phaseSucceeded
	case job.Spec.Suspend && (job.Status.Phase == "" || job.Status.Phase == phaseSuspended): // a job that runs stays Running
		return phaseSuspended
	case job.Status.Phase == "":
		return phaseCreated
	case count(pods, running) > 0:
		return phaseRunning
	default:
		return job.Status.Phase
	}
}

func newNode(object *unstructured.Unstructured, job *elasticJob, n node) *corev1.Pod {
	pod := newPod(object, job.Spec.ReplicaSpecs[n.kind].Template, n.name(job.Name), map[string]string{
		LabelElasticJob: job.Name, labelDLRoverType: n.kind,
		labelDLRoverIndex: strconv.Itoa(n.index), labelDLRoverRank: strconv.Itoa(n.rank), LabelRelaunchCount: strconv.Itoa(n.relaunches),
	})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}
