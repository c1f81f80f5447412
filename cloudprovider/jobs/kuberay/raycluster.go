package kuberay

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

var rayClusters = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "rayclusters"}

// RayCluster is KubeRay's RayCluster.
//
// Ray moves its tasks off a node that gets SIGTERM, given more than 30 seconds, and the operator replaces the pod. What Ray
// Train does with the loss is up to the program. The loss of the head is that of all, so that it should be kept off spot
// nodes.
//
// The operator deletes all pods of a cluster that is suspended. A cluster that was made for a RayJob, and is deleted with it,
// is not suspended by itself: the job is the RayJob then. One of a RayService cannot be suspended.
type RayCluster struct{ jobs.SuspendField }

var (
	_ jobs.System    = (*RayCluster)(nil)
	_ jobs.Suspender = (*RayCluster)(nil)
	_ jobs.Starter   = (*RayCluster)(nil)
	_ jobs.Child     = (*RayCluster)(nil)
)

// NewRayCluster returns the system of RayClusters.
func NewRayCluster(cluster jobs.Cluster) *RayCluster {
	return &RayCluster{jobs.NewSuspendField(cluster, rayClusters, "spec", "suspend")}
}

// StartsWith returns one gang of the minimum where the label asks for it.
func (*RayCluster) StartsWith(job jobs.Job) (jobs.StartGangs, error) { return startsWith(job), nil }

func (*RayCluster) Name() string { return NameRayCluster }
func (*RayCluster) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, group, kindRayCluster)
	if owner == nil {
		return "", "", false
	}
	if pod.Labels[labelType] == typeHead {
		return owner.Name, jobs.RoleLauncher, true
	}
	return owner.Name, jobs.RoleWorker, true
}

// Parent returns the RayJob that the cluster was made for.
func (*RayCluster) Parent(object *unstructured.Unstructured) (system, name string, ok bool) {
	owner := jobs.ControllerOf(object, group, kindRayJob)
	if owner == nil {
		return "", "", false
	}
	return NameRayJob, owner.Name, true
}

func decodeRayCluster(object *unstructured.Unstructured) (*clusterSpec, error) {
	var cluster struct {
		Spec *clusterSpec `json:"spec"`
	}
	if err := jobs.Decode(object, &cluster); err != nil {
		return nil, err
	}
	if cluster.Spec == nil {
		return nil, jobs.Missing("spec")
	}
	return cluster.Spec, nil
}

func (*RayCluster) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	spec, err := decodeRayCluster(object)
	if err != nil {
		return jobs.Job{}, err
	}
	job, err := spec.read("spec")
	job.Suspended = spec.Suspend
	return job, err
}

func (*RayCluster) PodSets(job jobs.Job, workers int) ([]jobs.PodSet, error) {
	spec, err := decodeRayCluster(job.Object)
	if err != nil {
		return nil, err
	}
	return spec.podSets(job, workers, "spec"), nil
}

// Suspend leaves alone a cluster that another controller made.
func (r *RayCluster) Suspend(ctx context.Context, job jobs.Job, reason jobs.HoldReason) (changed bool, err error) {
	if owner := metav1.GetControllerOf(job.Object); owner != nil {
		return false, fmt.Errorf("it belongs to %s %s: %w", owner.Kind, owner.Name, jobs.ErrUnsupported)
	}
	return r.SuspendField.Suspend(ctx, job, reason)
}
