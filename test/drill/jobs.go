// Package drill is what measurements of mass reclaims and runs that disturb them share: training jobs spread over nodes,
// a witness of what becomes of nodes and pods, jobs that answer a request for a checkpoint, and an account of what was
// bought.
package drill

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

// LabelJob is on every pod of a Job, with its name.
const LabelJob = "job"

// Kind is the system that a Job runs under.
type Kind string

const (
	// Indexed is an Indexed Job, all or nothing. It fails for good when more than three of its pods failed: evictions of a
	// job that was not suspended before spend that.
	Indexed Kind = "job"
	// Replicas is a ReplicaSet whose annotations say with how many workers it can train.
	Replicas Kind = "replicaset"
	// Training is et-operator's TrainingJob, which is elastic. Its operator has to run, and there has to be a Node with
	// LabelSystem for its launcher.
	Training Kind = "trainingjob"
)

// LabelSystem is on Nodes for launchers, which are no spot instances.
const LabelSystem = "drill/system"

// Job is a training job of one GPU a worker that saves a checkpoint when it is asked to.
type Job struct {
	// Name is unique, whatever the namespaces; an empty Namespace is default.
	Name, Namespace string
	Kind
	Workers int
	// Min is with how many workers it can train. It is not looked at for an Indexed job.
	Min int
	// Guarded jobs have a PodDisruptionBudget that lets one worker go at a time.
	Guarded bool
}

const backoffLimit = 3

// maxWordWait is how long jobs ask to be waited for.
const maxWordWait = time.Minute

func (j Job) namespace() string { return cmp.Or(j.Namespace, metav1.NamespaceDefault) }

func (j Job) meta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name: j.Name, Namespace: j.namespace(), Labels: map[string]string{LabelJob: j.Name},
		Annotations: map[string]string{api.AnnotationAwaitCheckpoint: maxWordWait.String()},
	}
	if j.Kind == Replicas {
		meta.Annotations[api.AnnotationJob] = j.Name
		meta.Annotations[api.AnnotationMinReplicas] = strconv.Itoa(j.Min)
		meta.Annotations[api.AnnotationMaxReplicas] = strconv.Itoa(j.Workers)
	}
	return meta
}

func (j Job) template() corev1.PodTemplateSpec {
	pod := rig.GPUPod(j.Name, 1)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("5Gi"),
	}
	if j.Kind == Replicas {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	meta := j.meta()
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: meta.Annotations}, Spec: pod.Spec,
	}
}

// create makes the job's object, and returns what its pods name as their owner, nil where its operator makes them.
func (j Job) create(ctx context.Context, r *rig.Rig) (*metav1.OwnerReference, error) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{LabelJob: j.Name}}
	if j.Guarded {
		if _, err := r.Client.PolicyV1().PodDisruptionBudgets(j.namespace()).Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: j.Name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: ptr.To(intstr.FromInt(j.Workers - 1))},
		}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	workers := ptr.To(int32(j.Workers))
	switch j.Kind {
	case Training:
		return nil, j.createTraining(ctx, r)
	case Queued:
		return nil, j.createQueued(ctx, r)
	case JobSet:
		return nil, j.createJobSet(ctx, r)
	case Indexed:
		job, err := r.Client.BatchV1().Jobs(j.namespace()).Create(ctx, &batchv1.Job{
			ObjectMeta: j.meta(),
			Spec: batchv1.JobSpec{
				Parallelism: workers, Completions: workers, CompletionMode: ptr.To(batchv1.IndexedCompletion),
				BackoffLimit: ptr.To[int32](backoffLimit), Template: j.template(),
			},
		}, metav1.CreateOptions{})
		return metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job")), err
	default:
		set, err := r.Client.AppsV1().ReplicaSets(j.namespace()).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: j.meta(), Spec: appsv1.ReplicaSetSpec{Replicas: workers, Selector: selector, Template: j.template()},
		}, metav1.CreateOptions{})
		return metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")), err
	}
}

// worker is a pod as the job's controller would make it, on the node.
func (j Job) worker(owner *metav1.OwnerReference, index int, node string) *corev1.Pod {
	template := j.template()
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Name, pod.Namespace = fmt.Sprintf("%s-%d", j.Name, index), j.namespace()
	pod.OwnerReferences = []metav1.OwnerReference{*owner}
	pod.Spec.NodeName = node
	if j.Kind == Indexed {
		pod.Finalizers = []string{batchv1.JobTrackingFinalizer}
		maps.Copy(pod.Labels, map[string]string{
			batchv1.JobNameLabel: j.Name, batchv1.ControllerUidLabel: string(owner.UID),
			"job-name": j.Name, "controller-uid": string(owner.UID),
			batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index),
		})
		pod.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(index)
	}
	return pod
}

// Populate creates the jobs with their workers where place says, in a cluster whose controllers know nothing of it until
// it is done: neither they nor the scheduler make or place a pod, but for those of jobs that an operator serves.
func Populate(ctx context.Context, r *rig.Rig, jobs []Job, place func(job, worker int) (node string)) error {
	if err := createNamespaces(ctx, r, jobs); err != nil {
		return err
	}
	if err := r.Cluster.Kill(ctx, cluster.ControllerManager); err != nil {
		return err
	}
	workers := make([][]*corev1.Pod, len(jobs))
	var creations errgroup.Group
	creations.SetLimit(32)
	for i, job := range jobs {
		creations.Go(func() error {
			owner, err := job.create(ctx, r)
			if err != nil {
				return err
			}
			for w := range job.Workers {
				if owner == nil {
					break // the operator makes its pods
				}
				workers[i] = append(workers[i], job.worker(owner, w, place(i, w)))
			}
			return nil
		})
	}
	if err := creations.Wait(); err != nil {
		return err
	}
	var pods []*corev1.Pod
	for _, of := range workers {
		pods = append(pods, of...)
	}
	if err := r.Cluster.CreatePods(ctx, pods); err != nil {
		return err
	}
	return r.Cluster.Restart(ctx, cluster.ControllerManager)
}

// createNamespaces makes those that are missing, and waits for the ServiceAccounts without which no pod can be made.
func createNamespaces(ctx context.Context, r *rig.Rig, jobs []Job) error {
	names := sets.New[string]()
	for _, job := range jobs {
		names.Insert(job.namespace())
	}
	for name := range names {
		_, err := r.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		accounts, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
		if err != nil {
			return false, err
		}
		ready := sets.New[string]()
		for _, account := range accounts.Items {
			ready.Insert(account.Namespace)
		}
		return ready.IsSuperset(names), nil
	})
}
