package standin

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Resources of KubeRay.
var (
	RayClusters = schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayclusters"}
	RayJobs     = RayClusters.GroupVersion().WithResource("rayjobs")
)

const (
	// LabelRayCluster names the RayCluster of a pod.
	LabelRayCluster  = "ray.io/cluster"
	labelRayType     = "ray.io/node-type"
	labelRayGroup    = "ray.io/group"
	labelRayFromName = "ray.io/originated-from-cr-name"
	labelRayFromKind = "ray.io/originated-from-crd"

	typeHead     = "head"
	rayReady     = "ready"
	raySuspended = "suspended"
)

type rayCluster struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend       bool `json:"suspend"`
		HeadGroupSpec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"headGroupSpec"`
		WorkerGroupSpecs []rayGroup `json:"workerGroupSpecs"`
	} `json:"spec"`
	Status rayClusterStatus `json:"status"`
}

type rayGroup struct {
	GroupName     string                 `json:"groupName"`
	Suspend       bool                   `json:"suspend"`
	Replicas      *int                   `json:"replicas"`
	MinReplicas   *int                   `json:"minReplicas"`
	MaxReplicas   *int                   `json:"maxReplicas"`
	Template      corev1.PodTemplateSpec `json:"template"`
	ScaleStrategy struct {
		WorkersToDelete []string `json:"workersToDelete"`
	} `json:"scaleStrategy"`
}

// desired is never outside of the bounds.
func (g *rayGroup) desired() int {
	if g.Suspend {
		return 0
	}
	least := ptr.Deref(g.MinReplicas, 0)
	return min(max(ptr.Deref(g.Replicas, least), least), ptr.Deref(g.MaxReplicas, 1<<31-1))
}

type rayClusterStatus struct {
	State                   string     `json:"state,omitempty"`
	Conditions              conditions `json:"conditions,omitempty"`
	DesiredWorkerReplicas   int64      `json:"desiredWorkerReplicas,omitempty"`
	AvailableWorkerReplicas int64      `json:"availableWorkerReplicas,omitempty"`
}

// NewKubeRay plays KubeRay (github.com/ray-project/kuberay).
//
// A RayCluster has its head and the workers of each group, as many as replicas says within its bounds; what has ended is
// deleted and made anew, what workersToDelete names is deleted, and which of too many workers go is up to chance. A RayJob
// makes a RayCluster, and another after it was suspended. A RayJob fails with the head that it was submitted to, and when
// it is suspended without shutdownAfterJobFinishes.
//
// There are no services, no autoscaler of Ray's own, no groups of several hosts, and nobody submits anything.
func NewKubeRay(config *rest.Config) (*Operator, error) {
	return newOperator("kuberay", config, rayKinds)
}

func rayKinds(c cluster) []kind {
	ray := &kubeRay{c}
	return []kind{{RayJobs, ray.reconcileJob}, {RayClusters, ray.reconcileCluster}}
}

type kubeRay struct{ cluster }

func (o *kubeRay) reconcileCluster(ctx context.Context, object *unstructured.Unstructured) error {
	ray, err := decode[rayCluster](object)
	if err != nil {
		return err
	}
	pods, err := o.pods(ctx, ray.Namespace, map[string]string{LabelRayCluster: ray.Name})
	if err != nil {
		return err
	}
	if ray.Spec.Suspend {
		err = o.delete(ctx, metav1.DeleteOptions{}, values(pods)...)
	} else {
		create, remove := ray.plan(object, pods)
		if err = o.delete(ctx, metav1.DeleteOptions{}, remove...); err == nil {
			err = o.create(ctx, create...)
		}
	}
	if err != nil {
		return err
	}
	ray.Status.advance(&ray, pods)
	return o.setStatus(ctx, RayClusters, object, &ray.Status)
}

// plan says which pods to create and to delete.
func (r *rayCluster) plan(object *unstructured.Unstructured, pods map[string]*corev1.Pod) (create, remove []*corev1.Pod) {
	groups := map[string][]*corev1.Pod{}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if ended(pods[name]) {
			remove = append(remove, pods[name])
		}
		groups[pods[name].Labels[labelRayGroup]] = append(groups[pods[name].Labels[labelRayGroup]], pods[name])
	}
	if len(groups["headgroup"]) == 0 {
		create = append(create, r.newPod(object, r.Spec.HeadGroupSpec.Template, typeHead, "headgroup"))
	}
	for i := range r.Spec.WorkerGroupSpecs {
		group := &r.Spec.WorkerGroupSpecs[i]
		left := slices.DeleteFunc(groups[group.GroupName], func(pod *corev1.Pod) bool {
			if slices.Contains(group.ScaleStrategy.WorkersToDelete, pod.Name) {
				remove = append(remove, pod)
				return true
			}
			return false
		})
		for range group.desired() - len(left) {
			create = append(create, r.newPod(object, group.Template, roleWorker, group.GroupName))
		}
		if surplus := len(left) - group.desired(); surplus > 0 {
			remove = append(remove, left[:surplus]...)
		}
	}
	return create, remove
}

func (r *rayCluster) newPod(object *unstructured.Unstructured, template corev1.PodTemplateSpec, kind, group string) *corev1.Pod {
	name := r.Name + "-" + kind
	if kind == roleWorker {
		name = r.Name + "-" + group + "-" + roleWorker + "-" + rand.String(5)
	}
	return newPod(object, template, name, map[string]string{
		LabelRayCluster: r.Name, labelRayType: kind, labelRayGroup: group, "ray.io/is-ray-node": "yes",
		"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator",
	})
}

func (s *rayClusterStatus) advance(ray *rayCluster, pods map[string]*corev1.Pod) {
	s.DesiredWorkerReplicas = 0
	for i := range ray.Spec.WorkerGroupSpecs {
		s.DesiredWorkerReplicas += int64(ray.Spec.WorkerGroupSpecs[i].desired())
	}
	s.AvailableWorkerReplicas = int64(count(pods, func(pod *corev1.Pod) bool { return pod.Labels[labelRayType] == roleWorker && running(pod) }))
	switch {
	case ray.Spec.Suspend && len(pods) == 0:
		s.State = raySuspended
	case !ray.Spec.Suspend && s.State == raySuspended:
		s.State = ""
	case len(pods) > 0 && count(pods, running) == len(pods) && s.AvailableWorkerReplicas == s.DesiredWorkerReplicas:
		s.State = rayReady
	}
	if suspended := s.State == raySuspended; suspended || len(s.Conditions) > 0 {
		s.Conditions.set("RayClusterSuspended", suspended)
	}
}

type rayJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend                  bool           `json:"suspend"`
		ShutdownAfterJobFinishes bool           `json:"shutdownAfterJobFinishes"`
		BackoffLimit             int32          `json:"backoffLimit"`
		RayClusterSpec           map[string]any `json:"rayClusterSpec"`
	} `json:"spec"`
	Status rayJobStatus `json:"status"`
}

type rayJobStatus struct {
	JobDeploymentStatus string `json:"jobDeploymentStatus,omitempty"`
	RayClusterName      string `json:"rayClusterName,omitempty"`
	Failed              int32  `json:"failed"`
	// Head is the UID of the head that the job was submitted to. The real status has no such field.
	Head string `json:"head,omitempty"`
}

const (
	rayInitializing = "Initializing"
	raySuspending   = "Suspending"
	rayRetrying     = "Retrying"
	rayJobSuspended = "Suspended"
	rayInvalid      = "ValidationFailed"
)

func (o *kubeRay) reconcileJob(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[rayJob](object)
	if err != nil {
		return err
	}
	switch status := &job.Status; {
	case job.Spec.Suspend && !job.Spec.ShutdownAfterJobFinishes:
		status.JobDeploymentStatus = rayInvalid
	case status.JobDeploymentStatus == "":
		status.JobDeploymentStatus, status.RayClusterName = rayInitializing, job.Name+"-"+rand.String(5)
	case status.JobDeploymentStatus == rayInitializing, status.JobDeploymentStatus == phaseRunning:
		if job.Spec.Suspend {
			status.JobDeploymentStatus = raySuspending
			break
		}
		err = o.followCluster(ctx, object, &job)
	case status.JobDeploymentStatus == raySuspending, status.JobDeploymentStatus == rayRetrying:
		err = o.releaseCluster(ctx, &job)
	case status.JobDeploymentStatus == rayJobSuspended && !job.Spec.Suspend:
		status.JobDeploymentStatus = ""
	}
	if err != nil {
		return err
	}
	return o.setStatus(ctx, RayJobs, object, &job.Status)
}

// followCluster makes the job's cluster, and submits to its head when it is ready.
func (o *kubeRay) followCluster(ctx context.Context, object *unstructured.Unstructured, job *rayJob) error {
	clusters := o.objects.Resource(RayClusters).Namespace(job.Namespace)
	is, err := clusters.Get(ctx, job.Status.RayClusterName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": RayClusters.GroupVersion().String(), "kind": "RayCluster", "spec": job.Spec.RayClusterSpec,
		}}
		made.SetName(job.Status.RayClusterName)
		made.SetLabels(map[string]string{labelRayFromName: job.Name, labelRayFromKind: "RayJob"})
		made.SetOwnerReferences([]metav1.OwnerReference{controllerReference(object)})
		_, err = clusters.Create(ctx, made, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	heads, err := o.pods(ctx, job.Namespace, map[string]string{LabelRayCluster: is.GetName(), labelRayType: typeHead})
	if err != nil {
		return err
	}
	head := ""
	for _, pod := range heads {
		if running(pod) {
			head = string(pod.UID)
		}
	}
	state, _, _ := unstructured.NestedString(is.Object, "status", "state")
	job.Status.submit(state == rayReady, head, job.Spec.BackoffLimit)
	return nil
}

// submit brings the status up to what the head says.
func (s *rayJobStatus) submit(ready bool, head string, backoffLimit int32) {
	switch {
	case s.JobDeploymentStatus == rayInitializing && ready:
		s.JobDeploymentStatus, s.Head = phaseRunning, head
	case s.JobDeploymentStatus == phaseRunning && head != s.Head:
		s.JobDeploymentStatus = phaseFailed
		if s.Failed++; s.Failed <= backoffLimit {
			s.JobDeploymentStatus = rayRetrying
		}
	}
}

// releaseCluster goes on when the cluster is no more, whose pods are still being ended then. To delete them is the garbage
// collector's, but it takes half a minute to learn of a resource that has only just been installed.
func (o *kubeRay) releaseCluster(ctx context.Context, job *rayJob) error {
	pods, err := o.pods(ctx, job.Namespace, map[string]string{LabelRayCluster: job.Status.RayClusterName})
	if err != nil {
		return err
	}
	err = o.objects.Resource(RayClusters).Namespace(job.Namespace).Delete(ctx, job.Status.RayClusterName, metav1.DeleteOptions{})
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	if err := o.delete(ctx, metav1.DeleteOptions{}, values(pods)...); err != nil {
		return err
	}
	next := rayJobSuspended
	if job.Status.JobDeploymentStatus == rayRetrying {
		next = ""
	}
	job.Status = rayJobStatus{JobDeploymentStatus: next, Failed: job.Status.Failed}
	return nil
}
