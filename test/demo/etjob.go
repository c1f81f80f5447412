package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Labels that et-operator puts on the pods of a TrainingJob.
const (
	labelGroupName = "group-name"
	labelJobName   = "training-job-name"
	labelJobRole   = "training-job-role"
	labelIndex     = "replica-index"

	roleLauncher = "launcher"
	roleWorker   = "worker"
)

var trainingJobs = schema.GroupVersionResource{Group: "kai.alibabacloud.com", Version: "v1alpha1", Resource: "trainingjobs"}

// trainingJob is what the stand-in reads of the resource.
type trainingJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ETReplicaSpecs struct {
			Launcher replicaSpec `json:"launcher"`
			Worker   replicaSpec `json:"worker"`
		} `json:"etReplicaSpecs"`
	} `json:"spec"`
	Status trainingJobStatus `json:"status"`
}

type replicaSpec struct {
	Replicas      int32                  `json:"replicas"`
	RestartPolicy string                 `json:"restartPolicy"`
	Template      corev1.PodTemplateSpec `json:"template"`
}

// trainingJobStatus is what the stand-in keeps. The workers are those that should be there and those that run.
type trainingJobStatus struct {
	Phase          string   `json:"phase,omitempty"`
	TargetWorkers  []string `json:"targetWorkers,omitempty"`
	CurrentWorkers []string `json:"currentWorkers,omitempty"`
}

const (
	phaseCreated   = "Created"
	phaseRunning   = "Running"
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"
)

// standInOperator stands in for et-operator, which needs machines that run containers. It does what a reclaim meets:
// the workers come first, the launcher when all of them run; a worker that is lost comes again under a new index where
// its restart policy is Always; the launcher's end is the job's. There are no services, no hostfile, no ScaleIn and no
// ScaleOut.
type standInOperator struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

// standInInterval is how often it looks.
const standInInterval = 500 * time.Millisecond

// run reconciles until ctx ends, and returns the first error that trying again does not cure.
func (o *standInOperator) run(ctx context.Context) error {
	ticker := time.NewTicker(standInInterval)
	defer ticker.Stop()
	for {
		if err := o.reconcileAll(ctx); err != nil && ctx.Err() == nil && !transient(err) {
			return fmt.Errorf("stand-in for et-operator: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func transient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

func (o *standInOperator) reconcileAll(ctx context.Context) error {
	list, err := o.dynamic.Resource(trainingJobs).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, o.reconcile(ctx, &list.Items[i]))
	}
	return errors.Join(errs...)
}

func (o *standInOperator) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	var job trainingJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &job); err != nil {
		return err
	}
	if job.Status.Phase == phaseSucceeded || job.Status.Phase == phaseFailed {
		return nil
	}
	workers, launcher, err := o.pods(ctx, &job)
	if err != nil {
		return err
	}
	status := job.Status
	create := status.advance(job.Name, int(job.Spec.ETReplicaSpecs.Worker.Replicas),
		job.Spec.ETReplicaSpecs.Worker.RestartPolicy == "Always", workers, launcher)
	for _, name := range create {
		if err := o.create(ctx, newPod(&job, name)); err != nil {
			return err
		}
	}
	if status.Phase == phaseSucceeded || status.Phase == phaseFailed { // cleanPodPolicy: Running
		if err := o.deleteAll(ctx, workers); err != nil {
			return err
		}
	}
	return o.writeStatus(ctx, object, status)
}

// pods returns the workers by name, and the launcher or nil.
func (o *standInOperator) pods(ctx context.Context, job *trainingJob) (workers map[string]*corev1.Pod, launcher *corev1.Pod, err error) {
	selector := labels.SelectorFromSet(labels.Set{labelGroupName: trainingJobs.Group, labelJobName: job.Name})
	list, err := o.client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, nil, err
	}
	workers = map[string]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Labels[labelJobRole] == roleLauncher {
			launcher = pod
		} else {
			workers[pod.Name] = pod
		}
	}
	return workers, launcher, nil
}

// advance brings the status up to what the pods say, and returns the names of the pods to create.
func (s *trainingJobStatus) advance(job string, replicas int, restart bool, workers map[string]*corev1.Pod, launcher *corev1.Pod) (create []string) {
	s.CurrentWorkers = nil
	for _, name := range s.TargetWorkers {
		if pod := workers[name]; pod != nil && pod.Status.Phase == corev1.PodRunning {
			s.CurrentWorkers = append(s.CurrentWorkers, name)
		}
	}
	switch {
	case s.Phase == "":
		s.Phase = phaseCreated
		for i := range replicas {
			create = append(create, workerName(job, i))
		}
		s.TargetWorkers = slices.Clone(create)
		return create
	case launcher != nil && launcher.Status.Phase == corev1.PodSucceeded:
		s.Phase = phaseSucceeded
		return nil
	case launcher != nil && launcher.Status.Phase == corev1.PodFailed, launcher == nil && s.Phase == phaseRunning:
		s.Phase = phaseFailed
		return nil
	case launcher != nil && launcher.Status.Phase == corev1.PodRunning:
		s.Phase = phaseRunning
	case launcher == nil && len(s.CurrentWorkers) >= replicas:
		create = append(create, job+"-"+roleLauncher)
	}
	if restart {
		create = append(create, s.replaceLost(job, workers)...)
	}
	return create
}

// replaceLost gives new names to the workers that have ended or are no more.
func (s *trainingJobStatus) replaceLost(job string, workers map[string]*corev1.Pod) (created []string) {
	next := 0
	for _, name := range s.TargetWorkers {
		next = max(next, workerIndex(name)+1)
	}
	for i, name := range s.TargetWorkers {
		pod := workers[name]
		if pod != nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			continue
		}
		s.TargetWorkers[i] = workerName(job, next)
		created = append(created, s.TargetWorkers[i])
		next++
	}
	return created
}

func workerName(job string, index int) string { return fmt.Sprintf("%s-%s-%d", job, roleWorker, index) }

func workerIndex(name string) int {
	index, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return index
}

// newPod makes the launcher or the worker of that name.
func newPod(job *trainingJob, name string) *corev1.Pod {
	template, role := job.Spec.ETReplicaSpecs.Worker.Template.DeepCopy(), roleWorker
	if strings.HasSuffix(name, "-"+roleLauncher) {
		template, role = job.Spec.ETReplicaSpecs.Launcher.Template.DeepCopy(), roleLauncher
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = name, job.Namespace
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[labelGroupName], pod.Labels[labelJobName], pod.Labels[labelJobRole] = trainingJobs.Group, job.Name, role
	if role == roleWorker {
		pod.Labels[labelIndex] = strconv.Itoa(workerIndex(name))
	}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: trainingJobs.GroupVersion().String(), Kind: "TrainingJob", Name: job.Name, UID: job.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	return pod
}

func (o *standInOperator) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := o.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (o *standInOperator) deleteAll(ctx context.Context, pods map[string]*corev1.Pod) error {
	for _, pod := range pods {
		err := o.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// writeStatus writes the status where it changed.
func (o *standInOperator) writeStatus(ctx context.Context, object *unstructured.Unstructured, status trainingJobStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	before, _, _ := unstructured.NestedMap(object.Object, "status")
	if fmt.Sprint(before) == fmt.Sprint(fields) {
		return nil
	}
	object.Object["status"] = fields
	_, err = o.dynamic.Resource(trainingJobs).Namespace(object.GetNamespace()).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}
