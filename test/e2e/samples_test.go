package e2e

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// sample is the first one of an operator's own documentation.
type sample struct {
	name    string
	systems []operators.System
	// files are submitted in this order.
	files     []operators.Sample
	namespace string
	// job is the object that the others are made for. One whose name the API server makes ends in a hyphen here.
	job  object
	pods string // label selector
	n    int
	// counts are the numbers in which the system itself counts what failed or was tried again. None of them may be set to more than 0.
	// Systems without such a number have none.
	counts []count
	// countsLost are those that count each lost pod by design.
	countsLost []count
	// events are the reasons of Events by which the system tells of the same.
	events []string
}

// object is one of the sample's namespace.
type object struct {
	of   schema.GroupVersionResource
	name string
}

// count is a number in an object.
type count struct {
	object
	path string
}

// TestFirstSamplesOfOperatorsSurviveAReclaim submits the first sample of each operator, unchanged, and reclaims the Node of its
// last pod. The samples ask for no GPU: the pool is of spot instances without one.
func TestFirstSamplesOfOperatorsSurviveAReclaim(t *testing.T) {
	rig.Long(t)
	for _, sample := range []sample{
		{
			name: "leaderworkerset", systems: []operators.System{operators.LeaderWorkerSet},
			files: []operators.Sample{operators.LeaderWorkerSet.Sample("config/samples/leaderworkerset_v1_leaderworkerset.yaml")},
			job:   object{operators.LeaderWorkerSets, "leaderworkerset-sample"},
			pods:  operators.LabelLeaderWorkerSet + "=leaderworkerset-sample", n: 12,
		},
		{
			name: "kuberay", systems: []operators.System{operators.KubeRay},
			files: []operators.Sample{operators.KubeRay.Sample("config/samples/ray-cluster.sample.yaml")},
			job:   object{operators.RayClusters, "raycluster-kuberay"},
			pods:  "ray.io/cluster=raycluster-kuberay", n: 2,
		},
		{
			name: "mpi-operator", systems: []operators.System{operators.MPIOperator},
			files: []operators.Sample{operators.MPIOperator.Sample("examples/v2beta1/pi/pi.yaml")},
			job:   object{operators.MPIJobs, "pi"},
			pods:  "training.kubeflow.org/job-name=pi", n: 3,
			counts: []count{
				{object{operators.MPIJobs, "pi"}, "status.replicaStatuses.Launcher.failed"},
				{object{operators.MPIJobs, "pi"}, "status.replicaStatuses.Worker.failed"},
				{object{batchJobs, "pi-launcher"}, "status.failed"},
			},
		},
		{
			name: "training-operator", systems: []operators.System{operators.TrainingOperator},
			files:     []operators.Sample{operators.TrainingOperator.Sample("examples/pytorch/simple.yaml")},
			namespace: "kubeflow", job: object{operators.PyTorchJobs, "pytorch-simple"},
			pods: "training.kubeflow.org/job-name=pytorch-simple", n: 2,
			counts: []count{
				{object{operators.PyTorchJobs, "pytorch-simple"}, "status.replicaStatuses.Master.failed"},
				{object{operators.PyTorchJobs, "pytorch-simple"}, "status.replicaStatuses.Worker.failed"},
			},
			events: []string{"PyTorchJobRestarting"},
		},
		{
			name: "jobset", systems: []operators.System{operators.JobSet},
			files: []operators.Sample{operators.JobSetInOrder},
			job:   object{operators.JobSets, "driver-ready-worker-start"},
			pods:  operators.LabelJobSet + "=driver-ready-worker-start", n: 3,
			counts: []count{
				{object{operators.JobSets, "driver-ready-worker-start"}, "status.restarts"},
				{object{batchJobs, "driver-ready-worker-start-driver-0"}, "status.failed"},
				{object{batchJobs, "driver-ready-worker-start-workers-0"}, "status.failed"},
			},
		},
		{
			name: "trainer", systems: []operators.System{operators.JobSet, operators.Trainer},
			files: []operators.Sample{operators.TorchDistributed, operators.TrainerMultiNode},
			job:   object{operators.TrainJobs, "multi-node-example"},
			pods:  operators.LabelJobSet + "=multi-node-example", n: 3,
			counts: []count{
				{object{operators.JobSets, "multi-node-example"}, "status.restarts"},
				{object{batchJobs, "multi-node-example-node-0"}, "status.failed"},
			},
		},
		{
			name: "kueue", systems: []operators.System{operators.Kueue},
			files: []operators.Sample{
				operators.Kueue.Sample("cmd/kueueviz/examples/00-resource-flavor.yaml"),
				operators.Kueue.Sample("cmd/kueueviz/examples/01-cluster-queues.yaml"),
				operators.Kueue.Sample("cmd/kueueviz/examples/02-local-queues.yaml"),
				operators.Kueue.Sample("cmd/kueueviz/examples/07-workload-priority-classes.yaml"),
				operators.Kueue.Sample("cmd/kueueviz/examples/03-agi-job.yaml"),
			},
			job:  object{batchJobs, "agi-"},
			pods: "job-name", n: 3,
			counts: []count{{object{operators.Workloads, "job-agi-"}, "status.requeueState.count"}},
			// The Job is not Indexed, so that its pods move one by one, and has no podFailurePolicy that ignores disruptions.
			countsLost: []count{{object{batchJobs, "agi-"}, "status.failed"}},
		},
	} {
		t.Run(sample.name, func(t *testing.T) { checkSampleSurvives(t, sample) })
	}
}

func checkSampleSurvives(t *testing.T, sample sample) {
	w := newWorld(rig.SpotPool("asg-cpu", 4, []string{cpuOnly.ID}, []string{"vsw-a"}))
	w.Types = append(w.Types, cpuOnly)
	s := newJobSuiteWithoutAutoscaler(t, w)
	s.Cloud.SetPrice(cpuOnly.ID, zoneA, 1, 3)
	require.NoError(t, s.Client.CoreV1().Nodes().Delete(t.Context(), "system", metav1.DeleteOptions{}), "the pods are to be on spot instances")
	s.runLeader()
	for _, system := range sample.systems {
		s.runRealOperator(system)
	}
	if sample.namespace == "" {
		sample.namespace = metav1.NamespaceDefault
	} else {
		s.submit(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + sample.namespace + `}}`)
	}
	for _, file := range sample.files {
		text, err := file.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Cluster.ApplyYAML(t.Context(), bytes.NewReader(text)))
	}

	before := awaitSampleRuns(s, sample, reclaimedPods{})
	reclaiming := s.reclaimNodesOf(before[len(before)-1])
	reclaiming.pods = slices.DeleteFunc(before, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName != reclaiming.pods[0].Spec.NodeName
	})
	now := awaitSampleRuns(s, sample, reclaiming)
	s.requireOtherNodes(reclaiming, now)
	requireNoMoreCounted(s, sample, len(reclaiming.pods))
}

// requireNoMoreCounted fails if the job has failed, or its system has counted anything against it that it need not.
func requireNoMoreCounted(s *jobSuite, sample sample, lost int) {
	s.t.Helper()
	job := sampleObject(s, sample, sample.job)
	conditions, _, err := unstructured.NestedSlice(job.Object, "status", "conditions")
	require.NoError(s.t, err)
	for _, condition := range conditions {
		c := condition.(map[string]any)
		assert.False(s.t, c["type"] == "Failed" && c["status"] == "True", "%v", c)
	}
	for _, count := range sample.counts {
		assert.Zero(s.t, count.read(s, sample), "%s of %s %s", count.path, count.of.Resource, count.name)
	}
	for _, count := range sample.countsLost {
		assert.LessOrEqual(s.t, count.read(s, sample), int64(lost), "%s of %s %s", count.path, count.of.Resource, count.name)
	}
	for _, reason := range sample.events {
		list, err := s.Client.CoreV1().Events(sample.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		require.NoError(s.t, err)
		assert.Empty(s.t, list.Items, reason)
	}
}

// read returns the number, 0 if it is not set.
func (c count) read(s *jobSuite, sample sample) int64 {
	s.t.Helper()
	n, _, err := unstructured.NestedInt64(sampleObject(s, sample, c.object).Object, strings.Split(c.path, ".")...)
	require.NoError(s.t, err)
	return n
}

// sampleObject returns the one object of that name, or whose name begins with it if it ends in a hyphen.
func sampleObject(s *jobSuite, sample sample, object object) *unstructured.Unstructured {
	s.t.Helper()
	list, err := s.objects.Resource(object.of).Namespace(sample.namespace).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	found := slices.DeleteFunc(list.Items, func(other unstructured.Unstructured) bool {
		isMade := strings.HasSuffix(object.name, "-") && strings.HasPrefix(other.GetName(), object.name)
		return other.GetName() != object.name && !isMade
	})
	require.Len(s.t, found, 1, "%s %s", object.of.Resource, object.name)
	return &found[0]
}

// awaitSampleRuns waits until all pods of the sample run, none of which is reclaiming, and returns them by name.
func awaitSampleRuns(s *jobSuite, sample sample, reclaiming reclaimedPods) (pods []corev1.Pod) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, sample.name+" runs", func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(sample.namespace).List(ctx, metav1.ListOptions{LabelSelector: sample.pods})
		if err != nil {
			return false, err
		}
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		return len(pods) == sample.n && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || reclaiming.has(pod.UID)
		}), nil
	})
	return pods
}
