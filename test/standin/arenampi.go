package standin

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// ArenaMPIJobs are those of `arena submit mpi`.
var ArenaMPIJobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1alpha1", Resource: "mpijobs"}

const (
	// LabelArenaMPIJob names the MPIJob of a pod.
	LabelArenaMPIJob = "mpi_job_name"
	// LabelArenaRole tells the launcher from the workers.
	LabelArenaRole   = "mpi_role_type"
	labelArenaGroup  = "group_name"
	annotationQueued = "scheduling.x-k8s.io/suspend"

	arenaGPUsPerNode = 8
	arenaCleanNone   = "None"
	resourceGPU      = "nvidia.com/gpu"

	launcherActive    = "Active"
	launcherSucceeded = "Succeeded"
	launcherFailed    = "Failed"
)

type arenaMPIJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		GPUs              *int32                      `json:"gpus"`
		Replicas          *int32                      `json:"replicas"`
		BackoffLimit      *int32                      `json:"backoffLimit"`
		CleanPodPolicy    *string                     `json:"cleanPodPolicy"`
		LauncherResources corev1.ResourceRequirements `json:"launcherResources"`
		Template          corev1.PodTemplateSpec      `json:"template"`
	} `json:"spec"`
	Status arenaMPIJobStatus `json:"status"`
}

type arenaMPIJobStatus struct {
	LauncherStatus string `json:"launcherStatus,omitempty"`
	WorkerReplicas int32  `json:"workerReplicas,omitempty"`
}

// NewArenaMPIOperator plays Arena's MPI operator (pkg/controllers/mpi_job_controller.go of AliyunContainerService/mpi-operator, d40ff84),
// and mpirun.
//
// The workers are the pods of a StatefulSet, which restarts them always, and the launcher that of a Job, which is made once all workers are
// ready (syncHandler). As long as exactly one launcher has failed, the operator counts the job as done, and unless the cleanPodPolicy is None
// it takes its workers away, although the Job makes another launcher (done in syncHandler, allocateGPUs). What becomes of workers by
// other means it does not notice: the list of hosts never changes (getOrCreateConfigMap). An object with the annotation
// scheduling.x-k8s.io/suspend is not looked at, which ends nothing that runs. mpirun ends with an error when one of its ranks is gone, or
// cannot be started.
//
// It makes no ConfigMap, no ServiceAccount and no roles, and its launcher has no container that delivers kubectl.
func NewArenaMPIOperator(config *rest.Config) (*Operator, error) {
	return newOperator("arena-mpi-operator", config, arenaMPIKinds)
}

func arenaMPIKinds(c cluster) []kind {
	return []kind{{ArenaMPIJobs, (&arenaMPIOperator{c, map[types.UID]sets.Set[types.UID]{}}).reconcile}}
}

type arenaMPIOperator struct {
	cluster
	// ranks are the workers that each launcher has started its ranks on.
	ranks map[types.UID]sets.Set[types.UID]
}

func (o *arenaMPIOperator) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[arenaMPIJob](object)
	if err != nil || job.Annotations[annotationQueued] == "true" {
		return err
	}
	launcher, err := o.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name+"-launcher", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		launcher = nil
	} else if err != nil {
		return err
	}
	done := launcher != nil && (launcher.Status.Succeeded == 1 || launcher.Status.Failed == 1)
	replicas, gpus := job.workers(done)
	workers, err := o.scaleWorkers(ctx, object, &job, replicas, gpus)
	if err != nil {
		return err
	}
	if launcher == nil && workers.Status.ReadyReplicas == replicas {
		if launcher, err = o.BatchV1().Jobs(job.Namespace).Create(ctx, job.newLauncher(object), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := o.runMPI(ctx, &job, replicas); err != nil {
		return err
	}
	job.Status.WorkerReplicas = workers.Status.ReadyReplicas
	switch {
	case launcher == nil:
	case launcher.Status.Active > 0:
		job.Status.LauncherStatus = launcherActive
	case launcher.Status.Succeeded > 0:
		job.Status.LauncherStatus = launcherSucceeded
	case launcher.Status.Failed > 0:
		job.Status.LauncherStatus = launcherFailed
	}
	return o.setStatus(ctx, ArenaMPIJobs, object, &job.Status)
}

// workers returns how many there are to be, and how many GPUs each of them gets.
func (j *arenaMPIJob) workers(done bool) (replicas int32, gpus int64) {
	replicas = ptr.Deref(j.Spec.Replicas, 0)
	limit := j.Spec.Template.Spec.Containers[0].Resources.Limits[resourceGPU]
	gpus = limit.Value()
	if total := ptr.Deref(j.Spec.GPUs, 0); total > 0 {
		replicas, gpus = max(total/arenaGPUsPerNode, 1), int64(min(total, arenaGPUsPerNode))
	}
	if done && ptr.Deref(j.Spec.CleanPodPolicy, "") != arenaCleanNone {
		replicas = 0
	}
	return replicas, gpus
}

// scaleWorkers makes the StatefulSet, or sets its number of replicas.
func (o *arenaMPIOperator) scaleWorkers(
	ctx context.Context, object *unstructured.Unstructured, job *arenaMPIJob, replicas int32, gpus int64,
) (*appsv1.StatefulSet, error) {
	statefulSets := o.AppsV1().StatefulSets(job.Namespace)
	workers, err := statefulSets.Get(ctx, job.Name+"-worker", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return statefulSets.Create(ctx, job.newWorkers(object, replicas, gpus), metav1.CreateOptions{})
	case err != nil || *workers.Spec.Replicas == replicas:
		return workers, err
	}
	workers.Spec.Replicas = &replicas
	return statefulSets.Update(ctx, workers, metav1.UpdateOptions{})
}

func (j *arenaMPIJob) labels(role string) map[string]string {
	return map[string]string{labelArenaGroup: ArenaMPIJobs.Group, LabelArenaMPIJob: j.Name, LabelArenaRole: role}
}

// template returns that of the pods with the role.
func (j *arenaMPIJob) template(role string) corev1.PodTemplateSpec {
	template := *j.Spec.Template.DeepCopy()
	template.Name = ""
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	maps.Copy(template.Labels, j.labels(role))
	return template
}

func (j *arenaMPIJob) newWorkers(object *unstructured.Unstructured, replicas int32, gpus int64) *appsv1.StatefulSet {
	template := j.template(roleWorker)
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	container := &template.Spec.Containers[0]
	container.Command, container.Args = []string{"sleep"}, []string{"365d"}
	if container.Resources.Limits == nil {
		container.Resources.Limits = corev1.ResourceList{}
	}
	container.Resources.Limits[resourceGPU] = *resource.NewQuantity(gpus, resource.DecimalExponent)
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.Name + "-worker", Namespace: j.Namespace, Labels: j.labels(roleWorker),
			OwnerReferences: []metav1.OwnerReference{controllerReference(object)},
		},
		Spec: appsv1.StatefulSetSpec{
			PodManagementPolicy: appsv1.ParallelPodManagement, Replicas: &replicas, ServiceName: j.Name + "-worker",
			Selector: &metav1.LabelSelector{MatchLabels: j.labels(roleWorker)}, Template: template,
		},
	}
}

func (j *arenaMPIJob) newLauncher(object *unstructured.Unstructured) *batchv1.Job {
	template := j.template(roleLauncher)
	template.Spec.Containers[0].Resources = j.Spec.LauncherResources
	if template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.Name + "-launcher", Namespace: j.Namespace, Labels: j.labels(roleLauncher),
			OwnerReferences: []metav1.OwnerReference{controllerReference(object)},
		},
		Spec: batchv1.JobSpec{BackoffLimit: ptr.To(ptr.Deref(j.Spec.BackoffLimit, 6)), Template: template},
	}
}

// runMPI has each launcher that runs start a rank on each worker, and end with an error once one of them is not there.
func (o *arenaMPIOperator) runMPI(ctx context.Context, job *arenaMPIJob, replicas int32) error {
	launchers, err := o.pods(ctx, job.Namespace, job.labels(roleLauncher))
	if err != nil {
		return err
	}
	workers, err := o.pods(ctx, job.Namespace, job.labels(roleWorker))
	if err != nil {
		return err
	}
	now := sets.New[types.UID]()
	for _, worker := range workers {
		if running(worker) && worker.DeletionTimestamp == nil {
			now.Insert(worker.UID)
		}
	}
	for _, launcher := range slices.Collect(maps.Values(launchers)) {
		if !running(launcher) {
			continue
		}
		started, known := o.ranks[launcher.UID]
		if !known {
			started = now.Clone()
			o.ranks[launcher.UID] = started
		}
		if started.Len() > 0 && now.IsSuperset(started) && (known || started.Len() == int(replicas)) {
			continue
		}
		if err := o.fail(ctx, launcher); err != nil {
			return err
		}
	}
	return nil
}

// fail has the pod end with an error.
func (o *arenaMPIOperator) fail(ctx context.Context, pod *corev1.Pod) error {
	_, err := o.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
