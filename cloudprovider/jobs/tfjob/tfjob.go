// Package tfjob is a job system of Kubeflow's training operator, and of Arena's tf-operator: the TFJob.
package tfjob

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
const Name = "tfjob"

const (
	kindTFJob  = "TFJob"
	operator   = "tfjob-controller"
	typeWorker = "Worker"
	pathSpecs  = "spec.tfReplicaSpecs"
	roleMaster = "master"
)

// hostTypes are those without which the workers do not train: see System.
var hostTypes = []string{"PS", "Chief", "Master", "Evaluator"}

var resource = schema.GroupVersionResource{Group: kubeflow.Group, Version: "v1", Resource: "tfjobs"}

// System is the TFJob.
//
// A lost pod comes back under its name, but by default, with the restartPolicy Never, the job has failed by then: with the first pod of any
// type that is seen to fail. What each pod is told of the others (TF_CONFIG) never changes, and the object does not say whether the
// program goes on without some of them. So a job needs all its pods.
//
// With enableDynamicWorker a worker is told of itself and the parameter servers only, and workers that fail do not fail the job. All other
// types do: that job goes on with any worker, and is suspended before it loses something else.
// Source: UpdateJobStatus in tfjob_controller.go and convertClusterSpecToSparseClusterSpec in tensorflow.go, both in
// pkg/controller.v1/tensorflow of the training operator 1.9.2; test/operators runs it.
//
// Arena installs its own tf-operator, which knows no suspension: its definition has no runPolicy
// (arena-artifacts/crds/kubeflow.org_tfjobs.yaml of kubeflow/arena, e30882c). See jobs.SuspendField for what becomes of that.
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

// tfJob is what is read of a TFJob.
type tfJob struct {
	Spec struct {
		RunPolicy           kubeflow.RunPolicy    `json:"runPolicy"`
		EnableDynamicWorker bool                  `json:"enableDynamicWorker"`
		ReplicaSpecs        kubeflow.ReplicaSpecs `json:"tfReplicaSpecs"`
	} `json:"spec"`
	Status kubeflow.Status `json:"status"`
}

func decode(object *unstructured.Unstructured) (*tfJob, error) {
	job := &tfJob{}
	if err := jobs.Decode(object, job); err != nil {
		return nil, err
	}
	if job.Spec.ReplicaSpecs == nil {
		return nil, jobs.Missing(pathSpecs)
	}
	return job, nil
}

// Name is the name of the system.
func (*System) Name() string { return Name }

// Member takes all types but Worker for hosts, and the worker that stands in for a chief where there is none.
func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, kubeflow.Group, kindTFJob)
	if owner == nil {
		return "", "", false
	}
	if kind, _ := kubeflow.ReplicaOf(pod, owner.Name); kind != "worker" || pod.Labels[kubeflow.LabelRole] == roleMaster {
		return owner.Name, jobs.RoleHost, true
	}
	return owner.Name, jobs.RoleWorker, true
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	job, err := decode(object)
	if err != nil {
		return jobs.Job{}, err
	}
	specs := job.Spec.ReplicaSpecs
	replicas := specs.Total()
	read := jobs.Job{Min: replicas, Max: replicas, Replicas: replicas, Suspended: job.Spec.RunPolicy.Suspend, Finished: job.Status.HasEnded()}
	if workers := specs.Count(typeWorker); job.Spec.EnableDynamicWorker && workers > 0 {
		read.Min, read.NeedsHosts = replicas-workers+1, true
	}
	if specs.HasRestartPolicy(kubeflow.RestartNever, kubeflow.RestartNever, slices.Collect(maps.Keys(specs))...) {
		read.Floor = read.Min
	}
	return read, nil
}

// StartsWith returns one gang of the minimum: the operator makes all pods at once, and they wait for each other.
func (*System) StartsWith(job jobs.Job) (jobs.StartGangs, error) {
	return jobs.StartGangs{Size: job.Min}, nil
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	job, err := decode(of.Object)
	if err != nil {
		return nil, err
	}
	types := []kubeflow.Replicas{{Type: typeWorker, Role: jobs.RoleWorker}}
	for _, kind := range hostTypes {
		count := job.Spec.ReplicaSpecs.Count(kind)
		types = append(types, kubeflow.Replicas{Type: kind, Count: count, Role: jobs.RoleHost})
		workers -= count
	}
	types[0].Count = workers
	return job.Spec.ReplicaSpecs.PodSets(of, pathSpecs, operator, types...)
}
