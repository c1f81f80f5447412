package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	operatorMPI   = "mpi-operator"
	operatorMPIV1 = "mpijob-controller"
)

// mpiJob is an MPIJob: of the mpi-operator (kubeflow.org/v2beta1), or of the training operator (kubeflow.org/v1). One of
// them is installed, as they share the name of the resource.
//
// A worker that is lost is made anew under the same name; one that is left Failed never is, so that it has to be
// deleted. A job under Horovod Elastic, known by the --min-np of its launcher, goes on meanwhile: horovodrun asks
// discover_hosts.sh, which is in a ConfigMap that the launcher mounts, and that its kubelet refreshes within a minute or so,
// or at once when an annotation of the pod changes. Any other MPI program ends when it loses a rank. The launcher's loss costs
// a retry of its Job in v2beta1, and the job in v1. In v1 the loss of a worker costs the job too, unless its restartPolicy is
// ExitCode.
type mpiJob struct {
	setSuspend
	operator string
	// label tells launcher from worker.
	label string
}

func newMPIJob(c *cluster) Adapter {
	return mpiJobOf(c, "mpijob", "v2beta1", operatorMPI, labelKubeflowRole)
}

func newMPIJobV1(c *cluster) Adapter {
	return mpiJobOf(c, "mpijob-v1", "v1", operatorMPIV1, labelKubeflowType)
}

func mpiJobOf(c *cluster, name, version, operator, label string) Adapter {
	return &mpiJob{
		setSuspend: setSuspend{
			system: &system{
				cluster: c, name: name, kind: "MPIJob",
				resource: schema.GroupVersionResource{Group: kubeflowGroup, Version: version, Resource: "mpijobs"},
			},
			path: []string{"spec", "runPolicy", "suspend"},
		},
		operator: operator, label: label,
	}
}

func (m *mpiJob) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelKubeflowJob]
	if pod.Labels[labelKubeflowOperator] != m.operator || name == "" {
		return Membership{}, false
	}
	return Membership{Ref: m.ref(pod.Namespace, name), Role: roleOf(pod.Labels[m.label])}, true
}

func (m *mpiJob) Read(object *unstructured.Unstructured) (Job, error) {
	spec, err := fieldsOf(object).section("spec")
	if err != nil {
		return Job{}, err
	}
	worker, err := spec.section("mpiReplicaSpecs", "Worker")
	if err != nil {
		return Job{}, err
	}
	job := Job{Finished: condition(object, "Succeeded", "Failed")}
	if job.Replicas, err = worker.count("replicas", 1); err != nil {
		return Job{}, err
	}
	if job.Min, job.Max, err = m.bounds(spec, job.Replicas); err != nil {
		return Job{}, err
	}
	policies, err := restartPolicies(spec, "mpiReplicaSpecs", "Never", "Worker")
	if err != nil {
		return Job{}, err
	}
	if m.operator == operatorMPIV1 && !slices.Contains(policies, "ExitCode") {
		job.Min = job.Replicas
	}
	job.Suspended, err = fieldsOf(object).flagAt(m.path...)
	return job, err
}

var (
	minProcesses = regexp.MustCompile(`--?min-(?:np|num-proc)[=\s]+(\d+)`)
	maxProcesses = regexp.MustCompile(`--?max-(?:np|num-proc)[=\s]+(\d+)`)
)

// bounds are those that the launcher gives horovodrun, in processes, of which a worker runs slotsPerWorker.
func (m *mpiJob) bounds(spec fields, replicas int) (least, most int, err error) {
	slots, err := spec.count("slotsPerWorker", 1)
	if err != nil {
		return 0, 0, err
	}
	launcher, err := spec.maybe("mpiReplicaSpecs", "Launcher", "template", "spec")
	if err != nil {
		return 0, 0, err
	}
	command, err := commandLine(launcher)
	if err != nil {
		return 0, 0, err
	}
	slots = max(slots, 1)
	least, most = replicas, replicas
	if found := minProcesses.FindStringSubmatch(command); found != nil {
		processes, _ := strconv.Atoi(found[1])
		least = min((processes+slots-1)/slots, replicas)
	}
	if found := maxProcesses.FindStringSubmatch(command); found != nil {
		processes, _ := strconv.Atoi(found[1])
		most = max(processes/slots, replicas)
	}
	return least, most, nil
}

// commandLine is what the first container of a pod runs, with blanks between the words.
func commandLine(podSpec fields) (string, error) {
	containers, err := podSpec.list("containers")
	if err != nil || len(containers) == 0 {
		return "", err
	}
	command, err := containers[0].strings("command")
	if err != nil {
		return "", err
	}
	args, err := containers[0].strings("args")
	return strings.Join(append(command, args...), " "), err
}

func (m *mpiJob) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	pods, err := kubeflowGang(job, room, object, "mpiReplicaSpecs", m.operator,
		kubeflowReplicas{name: "Worker", replicas: workers, role: RoleWorker},
		kubeflowReplicas{name: "Launcher", replicas: 1, role: RoleLauncher},
	)
	for _, pod := range pods {
		pod.Labels[m.label] = pod.Labels[labelKubeflowType]
	}
	return pods, err
}

// Refresh touches the launcher, so that it sees soon which hosts there are.
func (m *mpiJob) Refresh(ctx context.Context, job Job) error {
	selector := labels.Set{labelKubeflowOperator: m.operator, labelKubeflowJob: job.Name, m.label: roleLauncher}
	pods, err := m.client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("finding its launcher: %w", err)
	}
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationHostsRefreshed, m.clock.Now().UTC().Format(time.RFC3339))
	var errs []error
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		_, err := m.client.CoreV1().Pods(job.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
