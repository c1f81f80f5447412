// Package mpijob is the job systems of MPI: the MPIJob of Kubeflow's MPI operator and that of its training operator.
package mpijob

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/kubeflow"
	"gpu-spot-autoscaler/cloudprovider/patch"
)

// Names of the systems: the MPI operator's (kubeflow.org/v2beta1), and the training operator's (kubeflow.org/v1).
const (
	Name   = "mpijob"
	NameV1 = "mpijob-v1"
)

const (
	typeLauncher = "Launcher"
	typeWorker   = "Worker"
	pathSpecs    = "spec.mpiReplicaSpecs"
	launcher     = "launcher"
	// launcherWaits is the launcherCreationPolicy by which the launcher is made once the workers are ready.
	launcherWaits = "WaitForWorkersReady"
)

// System is an MPIJob. Only one of the two operators is installed, as they share the name of the resource.
//
// A lost worker is made again under the same name; one that has Failed is not, so that it has to be deleted. A job under
// Horovod Elastic, known by the --min-np of its launcher, goes on meanwhile: horovodrun runs discover_hosts.sh, which is in a
// ConfigMap that the launcher mounts. The kubelet refreshes it within a minute or so, or at once when an annotation of the
// pod changes. Any other MPI program ends when it loses a rank. The loss of the launcher costs a retry of its Job in v2beta1,
// and the job in v1. In v1 the loss of a worker costs the job too, unless the workers' restartPolicy is ExitCode.
//
// With runLauncherAsWorker, which v2beta1 has, the launcher is the first of the program's hosts, and trains like a worker. It does not count
// as one all the same: its loss is that of the job.
// Source: newConfigMap and updateDiscoverHostsInConfigMap in pkg/controller/mpi_job_controller.go of the MPI operator 0.6.0.
type System struct {
	jobs.SuspendField
	name     string
	operator string
	// labelRole is the label that tells the launcher from the workers.
	labelRole string
}

var (
	_ jobs.System          = (*System)(nil)
	_ jobs.Suspender       = (*System)(nil)
	_ jobs.LauncherStarter = (*System)(nil)
	_ jobs.HostsRefresher  = (*System)(nil)
	_ jobs.Grower          = (*System)(nil)
)

// New returns the MPI operator's system.
func New(cluster jobs.Cluster) *System {
	return newSystem(cluster, Name, "v2beta1", "mpi-operator", kubeflow.LabelRole)
}

// NewV1 returns the training operator's system.
func NewV1(cluster jobs.Cluster) *System {
	return newSystem(cluster, NameV1, "v1", "mpijob-controller", kubeflow.LabelType)
}

func newSystem(cluster jobs.Cluster, name, version, operator, labelRole string) *System {
	resource := schema.GroupVersionResource{Group: kubeflow.Group, Version: version, Resource: "mpijobs"}
	return &System{
		SuspendField: jobs.NewSuspendField(cluster, resource, kubeflow.SuspendPath()...),
		name:         name, operator: operator, labelRole: labelRole,
	}
}

// mpiJob is what is read of an MPIJob.
type mpiJob struct {
	Spec struct {
		SlotsPerWorker      *jobs.Count `json:"slotsPerWorker"`
		RunLauncherAsWorker bool        `json:"runLauncherAsWorker"`
		// LauncherCreation is AtStartup by default.
		LauncherCreation string                `json:"launcherCreationPolicy"`
		RunPolicy        kubeflow.RunPolicy    `json:"runPolicy"`
		ReplicaSpecs     kubeflow.ReplicaSpecs `json:"mpiReplicaSpecs"`
	} `json:"spec"`
	Status kubeflow.Status `json:"status"`
}

func (s *System) Name() string { return s.name }

// Member goes by the MPIJob that makes the pod, or by the Job that makes the launcher of v2beta1.
// Source: newLauncherJob in pkg/controller/mpi_job_controller.go of the MPI operator 0.6.0.
func (s *System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	job = pod.Labels[kubeflow.LabelJob]
	switch {
	case pod.Labels[kubeflow.LabelOperator] != s.operator || job == "":
	case jobs.IsControlledBy(pod, batchv1.GroupName, "Job", job+"-"+launcher):
		return job, jobs.RoleLauncher, true
	case !jobs.IsControlledBy(pod, kubeflow.Group, "MPIJob", job):
	case pod.Labels[s.labelRole] == launcher:
		return job, jobs.RoleLauncher, true
	default:
		return job, jobs.RoleWorker, true
	}
	return "", "", false
}

func (s *System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	var job mpiJob
	if err := jobs.Decode(object, &job); err != nil {
		return jobs.Job{}, err
	}
	specs := job.Spec.ReplicaSpecs
	if specs.Get(typeWorker) == nil {
		return jobs.Job{}, jobs.Missing(pathSpecs + "." + typeWorker)
	}
	read := jobs.Job{Replicas: specs.Count(typeWorker), Suspended: job.Spec.RunPolicy.Suspend, Finished: job.Status.HasEnded()}
	var err error
	if read.Min, read.Max, err = job.bounds(read.Replicas); err != nil {
		return jobs.Job{}, err
	}
	if s.name == NameV1 && !specs.HasRestartPolicy(kubeflow.RestartExitCode, kubeflow.RestartNever, typeWorker) {
		read.Min, read.Floor = read.Replicas, read.Replicas
	}
	return read, nil
}

var (
	minProcesses = regexp.MustCompile(`--?min-(?:np|num-proc)[=\s]+(\d+)`)
	maxProcesses = regexp.MustCompile(`--?max-(?:np|num-proc)[=\s]+(\d+)`)
)

// bounds returns those that the launcher gives to horovodrun, in workers. It gives them in processes, of which a worker runs
// slotsPerWorker, as does the launcher if it is a host. One worker at least is needed, so that a job of which none runs waits.
func (j *mpiJob) bounds(replicas int) (least, most int, err error) {
	spec := j.Spec.ReplicaSpecs.Get(typeLauncher)
	if spec == nil {
		return replicas, replicas, nil
	}
	command, err := jobs.CommandLine(spec.Template, pathSpecs+"."+spec.Type+".template")
	if err != nil {
		return 0, 0, err
	}
	slots, others := max(j.Spec.SlotsPerWorker.Or(1), 1), 0
	if j.Spec.RunLauncherAsWorker {
		others = 1
	}
	least, most = replicas, replicas
	if found := minProcesses.FindStringSubmatch(command); found != nil {
		processes, _ := strconv.Atoi(found[1])
		least = min(max((processes+slots-1)/slots-others, 1), replicas)
	}
	if found := maxProcesses.FindStringSubmatch(command); found != nil {
		processes, _ := strconv.Atoi(found[1])
		most = max(processes/slots-others, replicas)
	}
	return least, most, nil
}

// CheckGrowth refuses jobs under the training operator, of which nobody has tried it, and those that cannot lose a worker, which would be
// lost with any of those that are added.
func (s *System) CheckGrowth(of jobs.Job) error {
	var job mpiJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return err
	}
	spec := job.Spec.ReplicaSpecs.Get(typeLauncher)
	if s.name == NameV1 || spec == nil {
		return fmt.Errorf("it is an MPIJob of the training operator, or has no launcher: %w", jobs.ErrUnsupported)
	}
	command, err := jobs.CommandLine(spec.Template, pathSpecs+"."+spec.Type+".template")
	if err == nil && !minProcesses.MatchString(command) {
		err = fmt.Errorf("its launcher has no --min-np, and would end with any of the workers that are added: %w", jobs.ErrUnsupported)
	}
	return err
}

// GrowBeyond sets the number of the workers. The operator makes the pods that are missing, and names them to the launcher once they run.
// Source: getOrCreateWorker and updateDiscoverHostsInConfigMap in pkg/controller/mpi_job_controller.go of the MPI operator 0.6.0.
func (s *System) GrowBeyond(ctx context.Context, of jobs.Job, workers int) (changed bool, err error) {
	var job mpiJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return false, err
	}
	patch := job.Spec.ReplicaSpecs.ReplicasPatch(jobs.GrownPatch(workers), pathSpecs, typeWorker, workers)
	err = s.Cluster.PatchJob(ctx, s.Resource(), of, patch)
	return err == nil, err
}

// StartsWith returns one gang of the workers that the program needs at least, and of the launcher if that is one of its hosts and not made
// only once the workers run.
// Source: syncHandler in pkg/controller/mpi_job_controller.go of the MPI operator 0.6.0.
func (s *System) StartsWith(of jobs.Job) (jobs.StartGangs, error) {
	var job mpiJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return jobs.StartGangs{}, err
	}
	if s.LaunchersMayStart() && job.Spec.RunLauncherAsWorker && job.Spec.LauncherCreation != launcherWaits {
		return jobs.StartGangs{Size: of.Min + 1}, nil
	}
	return jobs.StartGangs{Size: of.Min, Except: map[string]string{s.labelRole: launcher}}, nil
}

// LaunchersMayStart returns true for the operator that has runLauncherAsWorker.
func (s *System) LaunchersMayStart() bool { return s.name == Name }

func (s *System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	var job mpiJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return nil, err
	}
	var sets []jobs.PodSet
	if workers > 0 {
		set, err := s.podSet(of, job, typeWorker, workers, jobs.RoleWorker)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	set, err := s.podSet(of, job, typeLauncher, 1, jobs.RoleLauncher)
	return append(sets, set), err
}

func (s *System) podSet(of jobs.Job, job mpiJob, kind string, count int, role jobs.Role) (jobs.PodSet, error) {
	set, err := job.Spec.ReplicaSpecs.PodSet(of, pathSpecs, s.operator, kind, count, role)
	if err != nil {
		return set, err
	}
	kubeflowLabels := set.Labels
	set.Labels = func(i int) map[string]string {
		all := kubeflowLabels(i)
		all[s.labelRole] = all[kubeflow.LabelType]
		return all
	}
	return set, nil
}

// RefreshHosts changes an annotation of the launcher, so that its kubelet refreshes the list of hosts.
func (s *System) RefreshHosts(ctx context.Context, ref jobs.Ref) error {
	pods := s.Cluster.Client.CoreV1().Pods(ref.Namespace)
	selector := labels.Set{kubeflow.LabelOperator: s.operator, kubeflow.LabelJob: ref.Name, s.labelRole: launcher}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("find its launcher: %w", err)
	}
	refreshed := map[string]any{api.AnnotationHostsRefreshed: s.Cluster.Clock.Now().UTC().Format(time.RFC3339)}
	var errs []error
	for i := range list.Items {
		pod := &list.Items[i]
		if _, role, ok := s.Member(pod); !ok || role != jobs.RoleLauncher || pod.DeletionTimestamp != nil || podutil.IsPodTerminal(pod) {
			continue
		}
		if err := patch.Annotate(ctx, pods, pod, refreshed); !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
