// Package jaxjob is a job system of Kubeflow's training operator: the JAXJob.
package jaxjob

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/kubeflow"
)

// Name is the name of the system.
const Name = "jaxjob"

const (
	kindJAXJob = "JAXJob"
	operator   = "jaxjob-controller"
	typeWorker = "Worker"
	pathSpecs  = "spec.jaxReplicaSpecs"
)

var resource = schema.GroupVersionResource{Group: kubeflow.Group, Version: "v1", Resource: "jaxjobs"}

// System is the training operator's JAXJob.
//
// Its only type is Worker. Each process is told how many there are in all (NUM_PROCESSES), and that worker 0 coordinates them: the job needs
// all of them. A lost worker comes back under its name, but with the restartPolicy Never, which is the default, the job has failed
// by then. Source: setPodEnv in envvar.go and UpdateJobStatus in jaxjob_controller.go, both in pkg/controller.v1/jax of the training
// operator 1.9.2; test/operators runs it.
type System struct{ jobs.SuspendField }

var (
	_ jobs.System    = (*System)(nil)
	_ jobs.Suspender = (*System)(nil)
	_ jobs.Starter   = (*System)(nil)
)

// New returns the system.
func New(cluster jobs.Cluster) *System {
	return &System{jobs.NewSuspendField(cluster, resource, kubeflow.SuspendPath()...)}
}

// jaxJob is what is read of a JAXJob.
type jaxJob struct {
	Spec struct {
		RunPolicy    kubeflow.RunPolicy    `json:"runPolicy"`
		ReplicaSpecs kubeflow.ReplicaSpecs `json:"jaxReplicaSpecs"`
	} `json:"spec"`
	Status kubeflow.Status `json:"status"`
}

// Name is the name of the system.
func (*System) Name() string { return Name }

// Member takes the coordinator for a host.
func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, kubeflow.Group, kindJAXJob)
	if owner == nil {
		return "", "", false
	}
	if _, index := kubeflow.ReplicaOf(pod, owner.Name); index == "0" {
		return owner.Name, jobs.RoleHost, true
	}
	return owner.Name, jobs.RoleWorker, true
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	var job jaxJob
	if err := jobs.Decode(object, &job); err != nil {
		return jobs.Job{}, err
	}
	if job.Spec.ReplicaSpecs == nil {
		return jobs.Job{}, jobs.Missing(pathSpecs)
	}
	workers := job.Spec.ReplicaSpecs.Total()
	read := jobs.Job{Min: workers, Max: workers, Replicas: workers, Suspended: job.Spec.RunPolicy.Suspend, Finished: job.Status.HasEnded()}
	if job.Spec.ReplicaSpecs.HasRestartPolicy(kubeflow.RestartNever, kubeflow.RestartNever, slices.Collect(maps.Keys(job.Spec.ReplicaSpecs))...) {
		read.Floor = workers
	}
	return read, nil
}

// StartsWith returns one gang of all pods: the operator makes them at once, and they wait for each other.
func (*System) StartsWith(job jobs.Job) (jobs.StartGangs, error) {
	return jobs.StartGangs{Size: job.Min}, nil
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	var job jaxJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return nil, err
	}
	set, err := job.Spec.ReplicaSpecs.PodSet(of, pathSpecs, operator, typeWorker, workers, jobs.RoleWorker)
	return []jobs.PodSet{set}, err
}
