package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// stayed is how long pods are watched before they acknowledge the request: longer than replacements take to come.
const stayed = 5 * time.Second

// TestTrainingOperator reclaims nodes of jobs under the training operator of Kubeflow.
func TestTrainingOperator(t *testing.T) {
	rig.Long(t)
	parts := []struct {
		pool string
		run  func(*jobSuite)
	}{
		{"elastic", elasticJobLosesAWorkerThenTooMany},
		{"grows", elasticJobGrowsAndComesBackWithAllOfItsWorkers},
		{"never", jobThatNoWorkerMayLeaveIsSuspended},
		{"mpi", mpiJobLosesAWorkerThenTooMany},
		{"mpi-never", mpiJobThatNoWorkerMayLeaveIsSuspended},
		{"tf", tfJobIsSuspended},
		{"tf-dynamic", tfJobLosesADynamicWorkerThenAllOfThem},
		{"jax", jaxJobIsSuspended},
	}
	var pools []string
	for _, part := range parts {
		pools = append(pools, part.pool)
	}
	s := newSharedJobSuite(t, pools...)
	operators.ForTest(t, s.Cluster, operators.TrainingOperator)
	createNodeForLaunchers(s)
	t.Run("parts", func(t *testing.T) {
		t.Run("example", func(t *testing.T) { requireExampleAccepted(s.subtest(t), "pytorch/job.yaml") })
		for _, part := range parts {
			t.Run(part.pool, func(t *testing.T) { part.run(s.subtest(t)) })
		}
	})
}

// createNodeForLaunchers makes a Node that is no spot instance, for pods that select it.
func createNodeForLaunchers(s *jobSuite) {
	s.t.Helper()
	launchers := cluster.NewFakeNode("launchers", corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("16"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), // which the operator has a launcher ask for
	})
	launchers.Labels["pool"] = launchers.Name
	launchers.Spec.ProviderID = s.World.Region + ".i-launchers"
	require.NoError(s.t, s.Cluster.CreateNodes(s.t.Context(), []*corev1.Node{launchers}))
}

// kubeflowTemplate is that of a pod with one GPU, of the pool, that is not evicted before it acknowledges the request.
func kubeflowTemplate(container, pool string) string {
	return fmt.Sprintf(`{metadata: {annotations: {gpu-spot.autoscaling/await-checkpoint: "true"}},
      spec: {terminationGracePeriodSeconds: 3, nodeSelector: {pool: %s},
      containers: [{name: %s, image: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}`, pool, container)
}

// pytorchJob has so many workers, of which two are enough.
func pytorchJob(name, restartPolicy string, workers int) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: %s}
spec:
  runPolicy: {backoffLimit: 1}
  elasticPolicy: {minReplicas: 2, maxReplicas: %d, rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker: {replicas: %d, restartPolicy: %s, template: %s}
`, name, workers, workers, restartPolicy, kubeflowTemplate("pytorch", name))
}

// mpiJob has three workers, of which two are enough.
func mpiJob(name, restartPolicy string) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: %s}
spec:
  runPolicy: {backoffLimit: 1}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {spec: {nodeSelector: {pool: launchers}, containers: [{name: mpi, image: train,
        command: [horovodrun, -np, "3", --min-np, "2", --host-discovery-script, /etc/mpi/discover_hosts.sh, python, train.py]}]}}
    Worker: {replicas: 3, %s template: %s}
`, name, restartPolicy, kubeflowTemplate("mpi", name))
}

// tfJob has a chief and two workers.
func tfJob(name string) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: %[1]s}
spec:
  tfReplicaSpecs:
    Chief: {replicas: 1, template: %[2]s}
    Worker: {replicas: 2, template: %[2]s}
`, name, kubeflowTemplate("tensorflow", name))
}

// jaxJob has three workers.
func jaxJob(name string) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: %[1]s}
spec:
  jaxReplicaSpecs:
    Worker: {replicas: 3, template: %[2]s}
`, name, kubeflowTemplate("jax", name))
}

func elasticJobLosesAWorkerThenTooMany(s *jobSuite) {
	s.submit(pytorchJob("elastic", "OnFailure", 4))
	const pods = "training.kubeflow.org/job-name=elastic"
	before := s.awaitRunningPods(pods, 4)

	reclaiming := s.reclaimNodesOf(before[3])
	awaitRequestOnAll(s, pods, 4)
	requirePodsStay(s, before[3])
	acknowledgeWhenAsked(s, before[0]) // any pod of the job will do
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(pods, 4)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, names(before), names(now), "it has its name again")
	assert.Equal(s.t, uids(before[:3]), uids(now[:3]), "the others trained on")
	awaitRunningCondition(s, operators.PyTorchJobs, "elastic")

	restarts := countEvents(s, "PyTorchJob", "elastic", "PyTorchJobRestarting")
	checkSuspendedAndResumed(s, operators.PyTorchJobs, "PyTorchJob", "elastic", pods, 4, now[1:])
	assert.Equal(s.t, restarts, countEvents(s, "PyTorchJob", "elastic", "PyTorchJobRestarting"), "no rank was seen to fail")
	finishJob(s, operators.PyTorchJobs, "elastic", s.awaitRunningPods(pods, 4)...)
}

func jobThatNoWorkerMayLeaveIsSuspended(s *jobSuite) {
	s.submit(pytorchJob("never", "Never", 3))
	const pods = "training.kubeflow.org/job-name=never"
	checkSuspendedAndResumed(s, operators.PyTorchJobs, "PyTorchJob", "never", pods, 3, s.awaitRunningPods(pods, 3)[2:])
	finishJob(s, operators.PyTorchJobs, "never", s.awaitRunningPods(pods, 3)...)
}

func mpiJobLosesAWorkerThenTooMany(s *jobSuite) {
	s.submit(mpiJob("mpi", "restartPolicy: ExitCode,"))
	const pods, workersOf = "training.kubeflow.org/job-name=mpi", "training.kubeflow.org/job-name=mpi,training.kubeflow.org/replica-type=worker"
	before := s.awaitRunningPods(pods, 4) // launcher, workers
	reclaiming := s.reclaimNodesOf(before[3])
	awaitRequestOnAll(s, pods, 4)
	requirePodsStay(s, before[3])
	acknowledgeWhenAsked(s, before[1])
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(pods, 4)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, names(before), names(now))
	assert.Equal(s.t, uids(before[:3]), uids(now[:3]))
	awaitRunningCondition(s, operators.KubeflowMPIJobsV1, "mpi")

	checkSuspendedAndResumed(s, operators.KubeflowMPIJobsV1, "MPIJob", "mpi", pods, 4, s.awaitRunningPods(workersOf, 3)[1:])
	finishJob(s, operators.KubeflowMPIJobsV1, "mpi", s.awaitRunningPods(pods, 4)[0])
}

func mpiJobThatNoWorkerMayLeaveIsSuspended(s *jobSuite) {
	s.submit(mpiJob("mpi-never", ""))
	const pods = "training.kubeflow.org/job-name=mpi-never"
	checkSuspendedAndResumed(s, operators.KubeflowMPIJobsV1, "MPIJob", "mpi-never", pods, 4, s.awaitRunningPods(pods, 4)[3:])
	finishJob(s, operators.KubeflowMPIJobsV1, "mpi-never", s.awaitRunningPods(pods, 4)[0])
}

// tfJobIsSuspended is about one by whose object nobody knows whether it can do without a worker.
func tfJobIsSuspended(s *jobSuite) {
	s.submit(tfJob("tf"))
	const pods = "training.kubeflow.org/job-name=tf"
	checkSuspendedAndResumed(s, operators.TFJobs, "TFJob", "tf", pods, 3, s.awaitRunningPods(pods, 3)[2:])
	finishJob(s, operators.TFJobs, "tf", s.awaitRunningPods(pods, 3)[0])
	s.requireBought("tf", 3+1)
}

func tfJobLosesADynamicWorkerThenAllOfThem(s *jobSuite) {
	s.submit(`
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: tf-dynamic}
spec:
  enableDynamicWorker: true
  tfReplicaSpecs:
    PS: {replicas: 1, template: {spec: {nodeSelector: {pool: launchers}, containers: [{name: tensorflow, image: train}]}}}
    Worker: {replicas: 3, template: ` + kubeflowTemplate("tensorflow", "tf-dynamic") + `}
`)
	const pods = "training.kubeflow.org/job-name=tf-dynamic"
	before := s.awaitRunningPods(pods, 4) // parameter server, workers
	reclaiming := s.reclaimNodesOf(before[3])
	awaitRequestOnAll(s, pods, 4)
	requirePodsStay(s, before[3])
	acknowledgeWhenAsked(s, before[1])
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(pods, 4)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, names(before), names(now), "it has its name again")
	assert.Equal(s.t, uids(before[:3]), uids(now[:3]), "the others trained on")
	awaitRunningCondition(s, operators.TFJobs, "tf-dynamic")

	checkSuspendedAndResumed(s, operators.TFJobs, "TFJob", "tf-dynamic", pods, 4, now[1:])
	finishJob(s, operators.TFJobs, "tf-dynamic", s.awaitRunningPods(pods, 4)[1:]...)
}

func jaxJobIsSuspended(s *jobSuite) {
	s.submit(jaxJob("jax"))
	const pods = "training.kubeflow.org/job-name=jax"
	checkSuspendedAndResumed(s, operators.JAXJobs, "JAXJob", "jax", pods, 3, s.awaitRunningPods(pods, 3)[2:])
	finishJob(s, operators.JAXJobs, "jax", s.awaitRunningPods(pods, 3)...)
	s.requireBought("jax", 3+1)
}

// checkSuspendedAndResumed takes so many pods from the job that it cannot go on. It is asked, answers, is suspended before any
// pod goes, and comes back whole.
func checkSuspendedAndResumed(s *jobSuite, of schema.GroupVersionResource, kind, name, pods string, n int, lost []corev1.Pod) {
	s.t.Helper()
	reclaiming := s.reclaimNodesOf(lost...)
	awaitRequestOnAll(s, pods, n)
	requirePodsStay(s, lost...)
	assert.NotEqual(s.t, true, s.field(of, name, "spec.runPolicy.suspend"), "not before the word")
	ends := watchTerminationTimes(s, pods)
	acknowledgeWhenAsked(s, lost[0])
	suspended := awaitSuspended(s, of, name)
	s.awaitJobEvent(kind, name, "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	for pod, told := range ends(n) {
		assert.False(s.t, told.Before(suspended), "%s was told to end at %s, and the job suspended at %s", pod, told, suspended)
	}
	s.awaitJobEvent(kind, name, "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(pods, n))
	s.awaitNotHeld(of, name)
	assert.Equal(s.t, false, s.field(of, name, "spec.runPolicy.suspend"))
	awaitRunningCondition(s, of, name)
}

// awaitSuspended waits until the job is suspended, and says since when, to the second.
func awaitSuspended(s *jobSuite, of schema.GroupVersionResource, name string) (since time.Time) {
	s.t.Helper()
	s.eventually(name+" is suspended", func(ctx context.Context) (bool, error) {
		job, err := s.getObject(ctx, of, name)
		if err != nil || job.GetLabels()[labelHeld] != string(jobs.HeldSuspended) {
			return false, err
		}
		since, err = time.Parse(time.RFC3339, job.GetAnnotations()[api.AnnotationHeldSince])
		return err == nil, err
	})
	return since
}

// watchTerminationTimes watches the pods from now on. The function that it returns waits until n of them are being deleted, and
// returns since when, to the second.
func watchTerminationTimes(s *jobSuite, pods string) func(n int) map[string]time.Time {
	s.t.Helper()
	watcher, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Watch(s.t.Context(), metav1.ListOptions{LabelSelector: pods})
	require.NoError(s.t, err)
	s.t.Cleanup(watcher.Stop)
	return func(n int) map[string]time.Time {
		s.t.Helper()
		ends, late := map[string]time.Time{}, time.After(soon)
		for len(ends) < n {
			select {
			case event := <-watcher.ResultChan():
				pod, ok := event.Object.(*corev1.Pod)
				require.True(s.t, ok, "the watch ended")
				if _, known := ends[string(pod.UID)]; !known && pod.DeletionTimestamp != nil {
					ends[string(pod.UID)] = pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
				}
			case <-late:
				s.t.Fatalf("only %d of %d pods were told to end", len(ends), n)
			}
		}
		return ends
	}
}

// awaitRequestOnAll waits until all pods of the job carry the same request.
func awaitRequestOnAll(s *jobSuite, pods string, n int) {
	s.t.Helper()
	s.eventually("all pods are asked for a checkpoint", func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: pods})
		if err != nil {
			return false, err
		}
		requests := map[string]int{}
		for _, pod := range list.Items {
			if pod.Annotations[api.AnnotationReclaimDeadline] != "" && pod.Annotations[api.AnnotationCheckpointRequest] != pod.Annotations[api.AnnotationCheckpointAcknowledged] {
				requests[pod.Annotations[api.AnnotationCheckpointRequest]]++
			}
		}
		return len(requests) == 1 && slices.Contains(valuesOf(requests), n), nil
	})
}

func valuesOf(counts map[string]int) (values []int) {
	for _, count := range counts {
		values = append(values, count)
	}
	return values
}

// requirePodsStay fails if one of the pods is deleted while replacements have time to come.
func requirePodsStay(s *jobSuite, pods ...corev1.Pod) {
	s.t.Helper()
	rig.Always(s.t, stayed, "no pod is evicted before the acknowledgement", func(ctx context.Context) (bool, error) {
		for _, pod := range pods {
			now, err := s.pod(ctx, pod.Name)
			if err != nil {
				return true, nil // nothing was seen: the time may be over
			}
			if now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// awaitRunningCondition waits for the condition Running of the job, and fails if it is Failed or Suspended.
func awaitRunningCondition(s *jobSuite, of schema.GroupVersionResource, name string) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, name+" says that it runs", func(ctx context.Context) (bool, error) {
		conditions, err := trueConditions(ctx, s, of, name)
		return slices.Contains(conditions, "Running"), err
	})
	conditions, err := trueConditions(s.t.Context(), s, of, name)
	require.NoError(s.t, err)
	require.NotContains(s.t, conditions, "Failed")
	require.NotContains(s.t, conditions, "Suspended")
}

// trueConditions are the types of those that hold.
func trueConditions(ctx context.Context, s *jobSuite, of schema.GroupVersionResource, name string) (holding []string, err error) {
	object, err := s.getObject(ctx, of, name)
	if err != nil {
		return nil, err
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["status"] == "True" {
			holding = append(holding, fmt.Sprint(c["type"]))
		}
	}
	return holding, err
}

// finishJob has the pods finish their work, which ends the job.
func finishJob(s *jobSuite, of schema.GroupVersionResource, name string, pods ...corev1.Pod) {
	s.t.Helper()
	finishPods(s, pods...)
	s.eventually(name+" has succeeded", func(ctx context.Context) (bool, error) {
		conditions, err := trueConditions(ctx, s, of, name)
		return slices.Contains(conditions, "Succeeded"), err
	})
}

// finishPods has the pods finish their work.
func finishPods(s *jobSuite, pods ...corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		_, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(s.t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		require.NoError(s.t, err)
	}
}

// requireExampleAccepted has the API server check an example against the definitions of the operator, down to the last field.
func requireExampleAccepted(s *jobSuite, example string) {
	s.t.Helper()
	for _, object := range exampleObjects(s.t, example) {
		kind := object.GroupVersionKind()
		resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
		_, err := s.objects.Resource(resource).Namespace(metav1.NamespaceDefault).Create(s.t.Context(), object, metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
		})
		require.NoError(s.t, err, object.GetKind())
	}
}

// exampleObjects are those of a manifest in deploy/examples.
func exampleObjects(t *testing.T, path string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "examples", path))
	require.NoError(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, object)
	}
}

func names(pods []corev1.Pod) (names []string) {
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func uids(pods []corev1.Pod) (uids []types.UID) {
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	return uids
}
