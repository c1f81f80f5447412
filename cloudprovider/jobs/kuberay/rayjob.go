package kuberay

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	kindRayCluster  = "RayCluster"
	kindRayJob      = "RayJob"
	labelOriginName = "ray.io/originated-from-cr-name"
	labelOriginKind = "ray.io/originated-from-crd"
	statusSuspended = "Suspended"
	pathClusterSpec = "spec.rayClusterSpec"
)

var rayJobs = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "rayjobs"}

// RayJob is KubeRay's RayJob: a RayCluster that is made for one program, and the program.
//
// The operator deletes the cluster of a job that is suspended, and makes another one when the job is resumed. The program
// starts again on that, from its checkpoint. The operator shows the job as suspended, and forgets the name of its cluster,
// once that is deleted: its pods are still being ended then, and only name the cluster. The operator fails a RayJob that is
// suspended without shutdownAfterJobFinishes, and one that runs on a cluster of others, so that neither is suspended.
type RayJob struct{ jobs.SuspendField }

var (
	_ jobs.System    = (*RayJob)(nil)
	_ jobs.Suspender = (*RayJob)(nil)
	_ jobs.Starter   = (*RayJob)(nil)
	_ jobs.Grouper   = (*RayJob)(nil)
)

// NewRayJob returns the system of RayJobs.
func NewRayJob(cluster jobs.Cluster) *RayJob {
	return &RayJob{jobs.NewSuspendField(cluster, rayJobs, "spec", "suspend")}
}

// rayJob is what is read of a RayJob.
type rayJob struct {
	Spec struct {
		Suspend                  bool              `json:"suspend"`
		ShutdownAfterJobFinishes bool              `json:"shutdownAfterJobFinishes"`
		ClusterSelector          map[string]string `json:"clusterSelector"`
		RayClusterSpec           *clusterSpec      `json:"rayClusterSpec"`
	} `json:"spec"`
	Status struct {
		JobDeploymentStatus string `json:"jobDeploymentStatus"`
		RayClusterName      string `json:"rayClusterName"`
	} `json:"status"`
}

func decodeRayJob(object *unstructured.Unstructured) (*rayJob, error) {
	job := &rayJob{}
	if err := jobs.Decode(object, job); err != nil {
		return nil, err
	}
	if job.Spec.RayClusterSpec == nil {
		return nil, jobs.Missing(pathClusterSpec)
	}
	return job, nil
}

// StartsWith returns one gang of the minimum where the label asks for it.
func (*RayJob) StartsWith(job jobs.Job) (jobs.StartGangs, error) { return startsWith(job), nil }

func (*RayJob) Name() string { return NameRayJob }

// Member knows the pod that submits the program: that of a Job with the name of the RayJob. The pods of the cluster only name the cluster.
// Source: RayJobK8sJobNamespacedName in controllers/ray/common/association.go of ray-operator 1.5.0.
func (*RayJob) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	job = pod.Labels[labelOriginName]
	if pod.Labels[labelOriginKind] != kindRayJob || job == "" || !jobs.IsControlledBy(pod, batchv1.GroupName, "Job", job) {
		return "", "", false
	}
	return job, jobs.RoleLauncher, true
}

func (*RayJob) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	job, err := decodeRayJob(object)
	if err != nil {
		return jobs.Job{}, err
	}
	read, err := job.Spec.RayClusterSpec.read(pathClusterSpec)
	if err != nil {
		return jobs.Job{}, err
	}
	read.Suspended = job.Spec.Suspend
	read.Finished = slices.Contains([]string{"Complete", "Failed", "ValidationFailed"}, job.Status.JobDeploymentStatus)
	if job.Status.RayClusterName != "" {
		read.Parts = []jobs.Ref{jobs.NewRef(NameRayCluster, object.GetNamespace(), job.Status.RayClusterName)}
	}
	return read, nil
}

// PodSets fails until the operator has suspended a job that is to be: resumed before, it would keep what is left of its
// cluster.
func (*RayJob) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	job, err := decodeRayJob(of.Object)
	if err != nil {
		return nil, err
	}
	if of.Suspended && job.Status.JobDeploymentStatus != statusSuspended {
		return nil, &jobs.BusyError{With: "the deletion of its RayCluster"}
	}
	return job.Spec.RayClusterSpec.podSets(of, workers, pathClusterSpec), nil
}

// Group returns the RayCluster of the job, by which its pods are known.
func (*RayJob) Group(job jobs.Job, _ []*corev1.Pod) (*unstructured.Unstructured, error) {
	cluster := &unstructured.Unstructured{Object: map[string]any{}}
	cluster.SetGroupVersionKind(rayClusters.GroupVersion().WithKind(kindRayCluster))
	cluster.SetNamespace(job.Namespace)
	cluster.SetName(job.Name)
	cluster.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(job.Object, job.Object.GroupVersionKind())})
	return cluster, nil
}

// Suspend leaves alone a job that the operator would fail for it.
func (r *RayJob) Suspend(ctx context.Context, of jobs.Job, reason jobs.HoldReason) (changed bool, err error) {
	job, err := decodeRayJob(of.Object)
	switch {
	case err != nil:
		return false, err
	case !job.Spec.ShutdownAfterJobFinishes:
		return false, fmt.Errorf("it is not to be shut down after it finishes, and could not be suspended: %w", jobs.ErrUnsupported)
	case job.Spec.ClusterSelector != nil:
		return false, fmt.Errorf("it runs on a cluster of others: %w", jobs.ErrUnsupported)
	}
	return r.SuspendField.Suspend(ctx, of, reason)
}
