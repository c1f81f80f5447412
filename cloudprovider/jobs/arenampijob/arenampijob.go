// Package arenampijob is the job system of Arena's own MPI operator: the MPIJob v1alpha1, which `arena submit mpi` makes.
package arenampijob

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/kubeflow"
)

// Name is the name of the system.
const Name = "mpijob-v1alpha1"

const (
	labelGroup = "group_name"
	labelJob   = "mpi_job_name"
	labelRole  = "mpi_role_type"

	roleLauncher = "launcher"
	roleWorker   = "worker"
	pathTemplate = "spec.template"

	// gpusPerNode is what Arena starts the operator with (arena-artifacts/charts/mpi-operator/templates/operator-dp.yaml).
	gpusPerNode = 8
)

var resource = schema.GroupVersionResource{Group: kubeflow.Group, Version: "v1alpha1", Resource: "mpijobs"}

// System is the MPIJob v1alpha1.
//
// Its workers are the pods of a StatefulSet: a lost one comes back under its name. mpirun, which the launcher runs, ends when it loses a
// rank, and its list of hosts never changes, so that the job needs all workers. The launcher is the pod of a Job, which makes it again up to
// backoffLimit times. It begins anew, and not always with workers: after exactly one failure the operator removes them, unless the
// cleanPodPolicy is None, and after the next it makes them again.
//
// An MPIJob v1alpha1 has no field to suspend it. The annotation scheduling.x-k8s.io/suspend only keeps the operator from looking at the
// job, and ends no pod.
// Source: syncHandler and newWorker in pkg/controllers/mpi_job_controller.go of AliyunContainerService/mpi-operator (d40ff84), and
// arena-artifacts/crds/kubeflow.org_mpijobs.yaml of kubeflow/arena (e30882c).
type System struct{}

var (
	_ jobs.System  = (*System)(nil)
	_ jobs.Starter = (*System)(nil)
)

// New returns the system.
func New() *System { return &System{} }

// mpiJob is what is read of an MPIJob.
type mpiJob struct {
	Spec struct {
		GPUs              *jobs.Count                 `json:"gpus"`
		Replicas          *jobs.Count                 `json:"replicas"`
		LauncherResources corev1.ResourceRequirements `json:"launcherResources"`
		Template          json.RawMessage             `json:"template"`
	} `json:"spec"`
	Status struct {
		LauncherStatus string `json:"launcherStatus"`
	} `json:"status"`
}

func decode(object *unstructured.Unstructured) (*mpiJob, error) {
	job := &mpiJob{}
	if err := jobs.Decode(object, job); err != nil {
		return nil, err
	}
	if len(job.Spec.Template) == 0 {
		return nil, jobs.Missing(pathTemplate)
	}
	return job, nil
}

// workers counts as the operator does (allocateGPUs): a job states its workers, or else its GPUs.
func (j *mpiJob) workers() int {
	if j.Spec.GPUs == nil {
		return j.Spec.Replicas.Or(0)
	}
	return max(j.Spec.GPUs.Int()/gpusPerNode, 1)
}

// Name is the name of the system.
func (*System) Name() string { return Name }

// Resource is that of MPIJobs v1alpha1.
func (*System) Resource() schema.GroupVersionResource { return resource }

// Member goes by the StatefulSet and the Job that make the pods.
func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	job = pod.Labels[labelJob]
	switch {
	case job == "":
	case jobs.IsControlledBy(pod, appsv1.GroupName, "StatefulSet", job+"-"+roleWorker):
		return job, jobs.RoleWorker, true
	case jobs.IsControlledBy(pod, batchv1.GroupName, "Job", job+"-"+roleLauncher):
		return job, jobs.RoleLauncher, true
	}
	return "", "", false
}

// Read takes a job whose launcher has failed for one that goes on, as its Job may make another one.
func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	job, err := decode(object)
	if err != nil {
		return jobs.Job{}, err
	}
	workers := job.workers()
	return jobs.Job{Min: workers, Max: workers, Replicas: workers, Finished: job.Status.LauncherStatus == "Succeeded"}, nil
}

// StartsWith returns one gang of all workers: the operator makes the launcher once they are ready.
func (*System) StartsWith(job jobs.Job) (jobs.StartGangs, error) {
	return jobs.StartGangs{Size: job.Min}, nil
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	job, err := decode(of.Object)
	if err != nil {
		return nil, err
	}
	launcher, err := job.launcherTemplate()
	if err != nil {
		return nil, err
	}
	labels := func(role string) func(int) map[string]string {
		return func(int) map[string]string {
			return map[string]string{labelGroup: kubeflow.Group, labelJob: of.Name, labelRole: role}
		}
	}
	return []jobs.PodSet{
		{
			Path: pathTemplate, Template: job.Spec.Template, Count: workers, Role: jobs.RoleWorker,
			NamePrefix: of.Name + "-" + roleWorker, Labels: labels(roleWorker),
		},
		{
			Path: pathTemplate, Template: launcher, Count: 1, Role: jobs.RoleLauncher,
			NamePrefix: of.Name + "-" + roleLauncher, Labels: labels(roleLauncher),
		},
	}, nil
}

// launcherTemplate returns the template with the resources of the launcher, which replace those of the workers (newLauncher).
func (j *mpiJob) launcherTemplate() (json.RawMessage, error) {
	var template corev1.PodTemplateSpec
	if err := json.Unmarshal(j.Spec.Template, &template); err != nil {
		return nil, &jobs.FieldError{Path: pathTemplate, Problem: err.Error()}
	}
	if len(template.Spec.Containers) > 0 {
		template.Spec.Containers[0].Resources = j.Spec.LauncherResources
	}
	return json.Marshal(template)
}
