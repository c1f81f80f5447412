package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
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

// sample is one of an operator's own documentation, as the operator's module ships it.
type sample struct {
	system          operators.System
	path            string
	of              schema.GroupVersionResource
	namespace, name string
	pods            string // label selector
	n               int
}

// TestFirstSamplesOfOperatorsSurviveAReclaim submits the first sample of each operator, unchanged, and reclaims the Node of its
// last pod. The samples ask for no GPU: the pool is of spot instances without one. The modules of JobSet, the Kubeflow Trainer
// and Kueue ship no sample that runs.
func TestFirstSamplesOfOperatorsSurviveAReclaim(t *testing.T) {
	rig.Long(t)
	for _, sample := range []sample{
		{
			operators.LeaderWorkerSet, "config/samples/leaderworkerset_v1_leaderworkerset.yaml", operators.LeaderWorkerSets,
			metav1.NamespaceDefault, "leaderworkerset-sample", operators.LabelLeaderWorkerSet + "=leaderworkerset-sample", 12,
		},
		{
			operators.KubeRay, "config/samples/ray-cluster.sample.yaml", operators.RayClusters,
			metav1.NamespaceDefault, "raycluster-kuberay", "ray.io/cluster=raycluster-kuberay", 2,
		},
		{
			operators.MPIOperator, "examples/v2beta1/pi/pi.yaml", operators.MPIJobs,
			metav1.NamespaceDefault, "pi", "training.kubeflow.org/job-name=pi", 3,
		},
		{
			operators.TrainingOperator, "examples/pytorch/simple.yaml", operators.PyTorchJobs,
			"kubeflow", "pytorch-simple", "training.kubeflow.org/job-name=pytorch-simple", 2,
		},
	} {
		t.Run(sample.system.Name, func(t *testing.T) { checkSampleSurvives(t, sample) })
	}
}

func checkSampleSurvives(t *testing.T, sample sample) {
	w := newWorld(rig.SpotPool("asg-cpu", 4, []string{cpuOnly.ID}, []string{"vsw-a"}))
	w.Types = append(w.Types, cpuOnly)
	s := newJobSuiteWithoutAutoscaler(t, w)
	s.Cloud.SetPrice(cpuOnly.ID, zoneA, 1, 3)
	require.NoError(t, s.Client.CoreV1().Nodes().Delete(t.Context(), "system", metav1.DeleteOptions{}), "the pods are to be on spot instances")
	s.runLeader()
	s.runRealOperator(sample.system)
	dir, err := sample.system.Dir(t.Context())
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, sample.path))
	require.NoError(t, err)
	if sample.namespace != metav1.NamespaceDefault {
		s.submit(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + sample.namespace + `}}`)
	}
	require.NoError(t, s.Cluster.ApplyYAML(t.Context(), bytes.NewReader(text)))

	before := awaitSampleRuns(s, sample, reclaimedPods{})
	reclaiming := s.reclaimNodesOf(before[len(before)-1])
	reclaiming.pods = slices.DeleteFunc(before, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName != reclaiming.pods[0].Spec.NodeName
	})
	now := awaitSampleRuns(s, sample, reclaiming)
	s.requireOtherNodes(reclaiming, now)
	object, err := s.objects.Resource(sample.of).Namespace(sample.namespace).Get(t.Context(), sample.name, metav1.GetOptions{})
	require.NoError(t, err)
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	require.NoError(t, err)
	for _, condition := range conditions {
		c := condition.(map[string]any)
		assert.False(t, c["type"] == "Failed" && c["status"] == "True", "%v", c)
	}
}

// awaitSampleRuns waits until all pods of the sample run, none of which is reclaiming, and returns them by name.
func awaitSampleRuns(s *jobSuite, sample sample, reclaiming reclaimedPods) (pods []corev1.Pod) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, sample.name+" runs", func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(sample.namespace).List(ctx, metav1.ListOptions{LabelSelector: sample.pods})
		if err != nil {
			return false, err
		}
		pods = list.Items
		return len(pods) == sample.n && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || reclaiming.has(pod.UID)
		}), nil
	})
	return pods
}
