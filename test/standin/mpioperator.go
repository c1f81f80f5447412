package standin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// MPIJobs are those of mpi-operator v2beta1.
var MPIJobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}

const (
	labelMPIOperator = "training.kubeflow.org/operator-name"
	labelMPIJob      = "training.kubeflow.org/job-name"
	labelMPIRole     = "training.kubeflow.org/job-role"
	labelMPIIndex    = "training.kubeflow.org/replica-index"

	// DiscoverHosts is the key of the script in an MPIJob's <job>-config that lists the workers that run.
	DiscoverHosts = "discover_hosts.sh"
)

type mpiJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		RunPolicy struct {
			Suspend      bool   `json:"suspend"`
			BackoffLimit *int32 `json:"backoffLimit"`
		} `json:"runPolicy"`
		LauncherCreationPolicy string `json:"launcherCreationPolicy"`
		MPIReplicaSpecs        struct {
			Launcher mpiReplicas `json:"Launcher"`
			Worker   mpiReplicas `json:"Worker"`
		} `json:"mpiReplicaSpecs"`
	} `json:"spec"`
	Status mpiJobStatus `json:"status"`
}

type mpiReplicas struct {
	Replicas int                    `json:"replicas"`
	Template corev1.PodTemplateSpec `json:"template"`
}

type mpiJobStatus struct {
	Conditions      conditions                  `json:"conditions,omitempty"`
	ReplicaStatuses map[string]mpiReplicaStatus `json:"replicaStatuses,omitempty"`
}

type mpiReplicaStatus struct {
	Active int32 `json:"active,omitempty"`
	Failed int32 `json:"failed,omitempty"`
}

// NewMPIOperator plays mpi-operator v2beta1 (github.com/kubeflow/mpi-operator).
//
// The launcher is a batch Job, whose pods count against its backoff limit. A worker that is no more comes again under
// the same name; one that has failed but is still there is left like that. <job>-config lists the workers that run. A
// job with runPolicy.suspend loses its workers and its launcher's pod, and no failure is counted.
//
// It has no services, keys or pod groups, and takes all defaults but those named in the job's spec for given.
func NewMPIOperator(config *rest.Config) (*Operator, error) {
	return newOperator("mpi-operator", config, mpiKinds)
}

func mpiKinds(c cluster) []kind { return []kind{{MPIJobs, (&mpiOperator{c}).reconcile}} }

type mpiOperator struct{ cluster }

func (o *mpiOperator) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[mpiJob](object)
	if err != nil {
		return err
	}
	if job.Status.Conditions.has("Succeeded") || job.Status.Conditions.has("Failed") {
		return nil
	}
	workers, err := o.pods(ctx, job.Namespace, mpiLabels(&job, roleWorker))
	if err != nil {
		return err
	}
	if err := o.writeDiscoverHosts(ctx, object, workers); err != nil {
		return err
	}
	launcher, err := o.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name+"-launcher", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		launcher, err = nil, nil
	}
	if err != nil {
		return err
	}
	if job.Spec.RunPolicy.Suspend {
		err = o.delete(ctx, metav1.DeleteOptions{}, values(workers)...)
	} else {
		err = o.createWorkers(ctx, object, &job)
	}
	if err != nil {
		return err
	}
	if launcher, err = o.syncLauncher(ctx, object, &job, launcher, count(workers, running)); err != nil {
		return err
	}
	job.Status.advance(job.Spec.RunPolicy.Suspend, job.Spec.MPIReplicaSpecs.Worker.Replicas, workers, launcher)
	return o.setStatus(ctx, MPIJobs, object, &job.Status)
}

func mpiLabels(job *mpiJob, role string) map[string]string {
	return map[string]string{labelMPIOperator: "mpi-operator", labelMPIJob: job.Name, labelMPIRole: role}
}

// createWorkers asks for every name, and is content with whatever has it.
func (o *mpiOperator) createWorkers(ctx context.Context, object *unstructured.Unstructured, job *mpiJob) error {
	for i := range job.Spec.MPIReplicaSpecs.Worker.Replicas {
		labels := mpiLabels(job, roleWorker)
		labels[labelMPIIndex] = strconv.Itoa(i)
		pod := newPod(object, job.Spec.MPIReplicaSpecs.Worker.Template, fmt.Sprintf("%s-worker-%d", job.Name, i), labels)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		if err := o.create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// syncLauncher makes the launcher's Job, and suspends and resumes it with the MPIJob.
func (o *mpiOperator) syncLauncher(ctx context.Context, object *unstructured.Unstructured, job *mpiJob, launcher *batchv1.Job, ready int) (*batchv1.Job, error) {
	jobs := o.BatchV1().Jobs(job.Namespace)
	suspend := job.Spec.RunPolicy.Suspend
	if launcher == nil {
		if job.Spec.LauncherCreationPolicy == "WaitForWorkersReady" && ready < job.Spec.MPIReplicaSpecs.Worker.Replicas {
			return nil, nil
		}
		template := *job.Spec.MPIReplicaSpecs.Launcher.Template.DeepCopy()
		if template.Labels == nil {
			template.Labels = map[string]string{}
		}
		maps.Copy(template.Labels, mpiLabels(job, roleLauncher))
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return jobs.Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: job.Name + "-launcher", Labels: map[string]string{"app": job.Name},
				OwnerReferences: []metav1.OwnerReference{controllerReference(object)},
			},
			Spec: batchv1.JobSpec{
				BackoffLimit: job.Spec.RunPolicy.BackoffLimit, Template: template, Suspend: &suspend,
				PodReplacementPolicy: ptr.To(batchv1.Failed),
			},
		}, metav1.CreateOptions{})
	}
	if ptr.Deref(launcher.Spec.Suspend, false) == suspend {
		return launcher, nil
	}
	launcher.Spec.Suspend = &suspend
	return jobs.Update(ctx, launcher, metav1.UpdateOptions{})
}

// advance brings the status up to what workers and launcher say.
func (s *mpiJobStatus) advance(suspended bool, replicas int, workers map[string]*corev1.Pod, launcher *batchv1.Job) {
	s.Conditions.set("Created", true)
	var of mpiReplicaStatus
	if launcher != nil {
		of = mpiReplicaStatus{Active: launcher.Status.Active, Failed: launcher.Status.Failed}
	}
	s.ReplicaStatuses = map[string]mpiReplicaStatus{
		"Launcher": of,
		"Worker":   {Active: int32(count(workers, running)), Failed: int32(count(workers, failed))},
	}
	switch {
	case jobIs(launcher, batchv1.JobComplete):
		s.Conditions.set("Succeeded", true)
	case jobIs(launcher, batchv1.JobFailed):
		s.Conditions.set("Failed", true)
	case suspended:
		s.Conditions.set("Suspended", true)
		s.Conditions.set("Running", false)
	case launcher != nil && ptr.Deref(launcher.Status.Ready, 0) > 0 && count(workers, running) == replicas:
		s.Conditions.set("Running", true)
	}
	if !suspended && s.Conditions.has("Suspended") {
		s.Conditions.set("Suspended", false)
	}
}

func jobIs(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	return job != nil && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// writeDiscoverHosts lists the workers that run in the job's ConfigMap.
func (o *mpiOperator) writeDiscoverHosts(ctx context.Context, object *unstructured.Unstructured, workers map[string]*corev1.Pod) error {
	script := "#!/bin/sh\n"
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		if running(workers[name]) {
			script += "echo " + strings.Join([]string{name, object.GetName(), object.GetNamespace(), "svc"}, ".") + "\n"
		}
	}
	configs := o.CoreV1().ConfigMaps(object.GetNamespace())
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: object.GetName() + "-config", Namespace: object.GetNamespace(),
			OwnerReferences: []metav1.OwnerReference{controllerReference(object)},
		},
		Data: map[string]string{DiscoverHosts: script},
	}
	existing, err := configs.Get(ctx, config.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configs.Create(ctx, config, metav1.CreateOptions{})
	case err == nil && existing.Data[DiscoverHosts] != script:
		_, err = configs.Update(ctx, config, metav1.UpdateOptions{})
	}
	return err
}
