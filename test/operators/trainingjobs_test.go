package operators

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gpu-spot-autoscaler/test/cluster"
)

var (
	pytorchJobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}
	mpiJobs     = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "mpijobs"}
)

// pytorchJob is an elastic job without a master. GPUs is what each worker asks for, annotations are its pods'.
func pytorchJob(name, restartPolicy string, workers, least, gpus int, annotations ...string) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: %s}
spec:
  runPolicy: {backoffLimit: 3}
  elasticPolicy: {minReplicas: %d, maxReplicas: %d, maxRestarts: 3, rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker:
      replicas: %d
      restartPolicy: %s
      template:
        metadata: {annotations: {%s}}
        spec:
          terminationGracePeriodSeconds: 5
          containers: [{name: pytorch, image: pytorch, resources: {limits: {nvidia.com/gpu: %d}}}]
`, name, least, workers, workers, restartPolicy, strings.Join(annotations, ", "), gpus)
}

// tfJob has a parameter server and two workers, with the operator's default policy, which is Never.
func tfJob(name string, isDynamic bool) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: %s}
spec:
  enableDynamicWorker: %t
  tfReplicaSpecs:
    PS: {replicas: 1, template: &template {spec: {terminationGracePeriodSeconds: 5, containers: [{name: tensorflow, image: tf}]}}}
    Worker: {replicas: 2, template: *template}
`, name, isDynamic)
}

// jaxJob has three workers. Without a policy the operator's default holds, which is Never.
func jaxJob(name, policy string) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: %s}
spec:
  jaxReplicaSpecs:
    Worker: {replicas: 3, %s template: {spec: {terminationGracePeriodSeconds: 5, containers: [{name: jax, image: jax}]}}}
`, name, policy)
}

// mpiJob's launcher asks for no GPU. Without a policy the operator's default holds, which is Never.
func mpiJob(name, restartPolicy string, workers, gpus int, annotations ...string) string {
	policy := ""
	if restartPolicy != "" {
		policy = "restartPolicy: " + restartPolicy
	}
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: %s}
spec:
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      %s
      template:
        metadata: {annotations: {%s}}
        spec:
          terminationGracePeriodSeconds: 5
          nodeSelector: {pool: system}
          containers: [{name: mpi, image: mpi, command: [horovodrun]}]
    Worker:
      replicas: %d
      %s
      template:
        metadata: {annotations: {%s}}
        spec:
          terminationGracePeriodSeconds: 5
          containers: [{name: mpi, image: mpi, resources: {limits: {nvidia.com/gpu: %d}}}]
`, name, policy, strings.Join(annotations, ", "), workers, policy, strings.Join(annotations, ", "), gpus)
}

// jobs is a cluster with the operator, as its user sees it.
type jobs struct {
	*testing.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

func newJobs(t *testing.T, c *cluster.Cluster) *jobs {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	require.NoError(t, err)
	dynamicClient, err := dynamic.NewForConfig(c.AdminConfig())
	require.NoError(t, err)
	return &jobs{T: t, cluster: c, client: client, dynamic: dynamicClient}
}

func (j *jobs) submit(manifest string) {
	j.Helper()
	require.NoError(j, j.cluster.ApplyYAML(j.Context(), strings.NewReader(manifest)))
}

// conditions are the types of the conditions that hold, in the order in which they began.
func (j *jobs) conditions(ctx context.Context, kind schema.GroupVersionResource, name string) ([]string, error) {
	object, err := j.dynamic.Resource(kind).Namespace(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	var holding []string
	for _, condition := range conditions {
		if c := condition.(map[string]any); c["status"] == "True" {
			holding = append(holding, c["type"].(string))
		}
	}
	return holding, err
}

// pods are the job's, terminating ones included, by name.
func (j *jobs) pods(ctx context.Context, job string) (map[string]*corev1.Pod, error) {
	list, err := j.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "training.kubeflow.org/job-name=" + job})
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// running is whether exactly so many pods of the job are there, all of them running and none about to go.
func (j *jobs) running(ctx context.Context, job string, n int) (bool, error) {
	pods, err := j.pods(ctx, job)
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return false, nil
		}
	}
	return len(pods) == n, err
}

func (j *jobs) evict(pod string) {
	j.Helper()
	require.NoError(j, j.client.CoreV1().Pods(metav1.NamespaceDefault).EvictV1(j.Context(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: metav1.NamespaceDefault}}))
}

func (j *jobs) suspend(kind schema.GroupVersionResource, name string, suspend bool) {
	j.Helper()
	_, err := j.dynamic.Resource(kind).Namespace(metav1.NamespaceDefault).Patch(j.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"runPolicy":{"suspend":%t}}}`, suspend), metav1.PatchOptions{})
	require.NoError(j, err)
}
