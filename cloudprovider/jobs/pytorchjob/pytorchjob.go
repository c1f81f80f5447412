// Package pytorchjob is a job system of Kubeflow's training operator, and of Arena's pytorch-operator: the PyTorchJob.
package pytorchjob

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/kubeflow"
)

// Name is the name of the system.
const Name = "pytorchjob"

const (
	kindPyTorchJob = "PyTorchJob"
	operator       = "pytorchjob-controller"
	typeMaster     = "Master"
	typeWorker     = "Worker"
	pathSpecs      = "spec.pytorchReplicaSpecs"
)

var resource = schema.GroupVersionResource{Group: kubeflow.Group, Version: "v1", Resource: "pytorchjobs"}

// System is the PyTorchJob.
//
// A lost worker comes back under the same name. A job with an elasticPolicy copes with that, at the price of one of its
// maxRestarts; one without starts over from its checkpoint. Workers meet at <job>-worker-0 unless the policy names another
// host, and at the Master where there is one: both are evicted last. An elastic job without a Master succeeds when any of its
// workers exits with 0. Where the restartPolicy is Never, the job ends with the first worker that is lost, elastic or not.
//
// Arena installs its own pytorch-operator, which knows neither suspension nor elastic jobs: its definition has no runPolicy and no
// elasticPolicy (arena-artifacts/crds/kubeflow.org_pytorchjobs.yaml of kubeflow/arena, e30882c). See jobs.SuspendField for what becomes
// of that.
type System struct{ jobs.SuspendField }

var (
	_ jobs.System    = (*System)(nil)
	_ jobs.Suspender = (*System)(nil)
	_ jobs.Starter   = (*System)(nil)
	_ jobs.Grower    = (*System)(nil)
)

// New returns the system.
func New(cluster jobs.Cluster) *System {
	return &System{jobs.NewSuspendField(cluster, resource, kubeflow.SuspendPath()...)}
}

// pyTorchJob is what is read of a PyTorchJob.
type pyTorchJob struct {
	Spec struct {
		RunPolicy     kubeflow.RunPolicy    `json:"runPolicy"`
		ElasticPolicy *elasticPolicy        `json:"elasticPolicy"`
		ReplicaSpecs  kubeflow.ReplicaSpecs `json:"pytorchReplicaSpecs"`
	} `json:"spec"`
	Status kubeflow.Status `json:"status"`
}

type elasticPolicy struct {
	MinReplicas *jobs.Count `json:"minReplicas"`
	MaxReplicas *jobs.Count `json:"maxReplicas"`
	// Metrics is what the operator makes a HorizontalPodAutoscaler of, which sets the number of workers then.
	// Source: ReconcileHPA in pkg/controller.v1/pytorch/hpa.go of the training operator 1.9.2.
	Metrics []json.RawMessage `json:"metrics"`
}

// bounds returns those of the policy. A missing bound is the same as the other one, and both are the number of workers.
func (p *elasticPolicy) bounds(workers int) (least, most int) {
	switch {
	case p.MinReplicas == nil && p.MaxReplicas == nil:
		return workers, workers
	case p.MinReplicas == nil:
		return p.MaxReplicas.Int(), p.MaxReplicas.Int()
	}
	return p.MinReplicas.Int(), p.MaxReplicas.Or(p.MinReplicas.Int())
}

func (*System) Name() string { return Name }
func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, kubeflow.Group, kindPyTorchJob)
	if owner == nil {
		return "", "", false
	}
	if kind, index := kubeflow.ReplicaOf(pod, owner.Name); kind == "master" || index == "0" {
		return owner.Name, jobs.RoleHost, true
	}
	return owner.Name, jobs.RoleWorker, true
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	var job pyTorchJob
	if err := jobs.Decode(object, &job); err != nil {
		return jobs.Job{}, err
	}
	specs := job.Spec.ReplicaSpecs
	if specs == nil {
		return jobs.Job{}, jobs.Missing(pathSpecs)
	}
	workers := specs.Count(typeWorker)
	replicas := workers + specs.Count(typeMaster)
	read := jobs.Job{Min: replicas, Max: replicas, Replicas: replicas, Suspended: job.Spec.RunPolicy.Suspend, Finished: job.Status.HasEnded()}
	if job.Spec.ElasticPolicy != nil {
		read.Min, read.Max = job.Spec.ElasticPolicy.bounds(workers)
	}
	if specs.HasRestartPolicy(kubeflow.RestartNever, kubeflow.RestartOnFailure, typeMaster, typeWorker) {
		read.Min, read.Floor = replicas, replicas
	}
	return read, nil
}

// CheckGrowth refuses jobs of which torchrun does not take more workers, and those that a HorizontalPodAutoscaler scales.
func (*System) CheckGrowth(of jobs.Job) error {
	var job pyTorchJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return err
	}
	switch policy := job.Spec.ElasticPolicy; {
	case policy == nil:
		return fmt.Errorf("it has no elasticPolicy: %w", jobs.ErrUnsupported)
	case job.Spec.ReplicaSpecs.HasRestartPolicy(kubeflow.RestartNever, kubeflow.RestartOnFailure, typeMaster, typeWorker):
		return fmt.Errorf("with the restartPolicy Never it cannot lose a worker, and would be lost with any of those that are added: %w", jobs.ErrUnsupported)
	case len(policy.Metrics) > 0:
		return fmt.Errorf("the metrics of its elasticPolicy have a HorizontalPodAutoscaler set the number of workers: %w", jobs.ErrUnsupported)
	}
	return nil
}

// GrowBeyond sets the number of the workers, for which the operator makes the pods that are missing. They join at the next rendezvous, for
// which torchrun stops the others: https://docs.pytorch.org/docs/stable/elastic/run.html#membership-changes.
func (s *System) GrowBeyond(ctx context.Context, of jobs.Job, workers int) (changed bool, err error) {
	var job pyTorchJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return false, err
	}
	specs := job.Spec.ReplicaSpecs
	if specs.Get(typeWorker) == nil {
		return false, jobs.Missing(pathSpecs + "." + typeWorker)
	}
	patch := specs.ReplicasPatch(jobs.GrownPatch(workers), pathSpecs, typeWorker, workers-specs.Count(typeMaster))
	err = s.Cluster.PatchJob(ctx, resource, of, patch)
	return err == nil, err
}

// StartsWith returns one gang of the minimum: the operator makes all pods at once, and they wait for each other.
func (*System) StartsWith(job jobs.Job) (jobs.StartGangs, error) {
	return jobs.StartGangs{Size: job.Min}, nil
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	var job pyTorchJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return nil, err
	}
	masters := min(job.Spec.ReplicaSpecs.Count(typeMaster), workers)
	return job.Spec.ReplicaSpecs.PodSets(of, pathSpecs, operator,
		kubeflow.Replicas{Type: typeWorker, Count: workers - masters, Role: jobs.RoleWorker},
		kubeflow.Replicas{Type: typeMaster, Count: masters, Role: jobs.RoleHost})
}
