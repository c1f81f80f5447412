package e2e

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/test/standin"
)

// submitETJob makes a job of four workers of a pool of its own name, and returns them when it trains.
func (s *jobStory) submitETJob(name string, least int) (workers []corev1.Pod) {
	s.t.Helper()
	s.play(standin.NewETOperator)
	s.submit(fmt.Sprintf(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: %s}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: %s}
    worker: {replicas: 4, minReplicas: %d, maxReplicas: 4, template: %s}
`, name, systemTemplate("horovodrun python train.py"), least, gpuTemplate(name)))
	workers = s.whole(workersOfET(name), 4)
	s.becomes(standin.TrainingJobs, name, "status.phase", "Running")
	return workers
}

func workersOfET(name string) string {
	return standin.LabelTrainingJob + "=" + name + ",training-job-role=worker"
}

// busy says whether the operator is, with other jobs.
func (s *jobStory) busy(name string, busy bool) {
	s.t.Helper()
	value := "null"
	if busy {
		value = `"true"`
	}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, standin.AnnotationBusy, value)
	_, err := s.objects.Resource(standin.TrainingJobs).Namespace(metav1.NamespaceDefault).
		Patch(s.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// scalers are those of the job, or only those that are not done.
func (s *jobStory) scalers(of schema.GroupVersionResource, name string, open bool) (scalers []unstructured.Unstructured) {
	s.t.Helper()
	list, err := s.objects.Resource(of).Namespace(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, scaler := range list.Items {
		target, _, _ := unstructured.NestedString(scaler.Object, "spec", "selector", "name")
		done := hasCondition(scaler, "ScaleSucceeded") || hasCondition(scaler, "ScaleFailed")
		if target == name && !(open && done) {
			scalers = append(scalers, scaler)
		}
	}
	return scalers
}

func hasCondition(object unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, _ := item.(map[string]any); condition["type"] == kind {
			return true
		}
	}
	return false
}

// scaleInThatComesTooLateCostsNoOtherWorker: carried out when the pods are gone that it names, a ScaleIn deletes all.
func scaleInThatComesTooLateCostsNoOtherWorker(s *jobStory) {
	workers := s.submitETJob("late", 1)
	s.busy("late", true)
	doomed := s.reclaimUnder(workers[0])
	s.noted("TrainingJob", "late", "SpotJobShrunk", 1)
	require.Len(s.t, s.scalers(standin.ScaleIns, "late", true), 1)
	s.staysUntil(doomed, doomed.deadline.Add(-20*time.Second))
	s.left(doomed)
	assert.Empty(s.t, s.scalers(standin.ScaleIns, "late", true), "it was taken back before the eviction")

	s.busy("late", false)
	now := s.whole(workersOfET("late"), 4)
	s.elsewhere(doomed, now)
	s.released(standin.TrainingJobs, "late")
	now = s.whole(workersOfET("late"), 4)
	for _, survivor := range workers[1:] {
		assert.True(s.t, has(now, survivor), "%s trained on", survivor.Name)
	}
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "late", "status.restartCount"))
}

func has(pods []corev1.Pod, pod corev1.Pod) bool { return doomed{pods: pods}.has(pod.UID) }

// scaleInDoesNotOutliveTheWorkersItNames: the workers of the next life have the same names.
func scaleInDoesNotOutliveTheWorkersItNames(s *jobStory) {
	workers := s.submitETJob("outlived", 3)
	s.busy("outlived", true)
	first := s.reclaimUnder(workers[0])
	s.noted("TrainingJob", "outlived", "SpotJobShrunk", 1)
	require.Len(s.t, s.scalers(standin.ScaleIns, "outlived", true), 1)
	s.submit(`{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: theirs}, spec: {selector: {name: outlived}, toAdd: {count: 1}}}`)
	second := s.reclaimUnder(workers[1:3]...)
	s.noted("TrainingJob", "outlived", "SpotJobSuspended", 1)
	s.busy("outlived", false)
	s.left(first)
	s.left(second)
	s.noted("TrainingJob", "outlived", "SpotJobResumed", 1)
	s.released(standin.TrainingJobs, "outlived")
	s.becomes(standin.TrainingJobs, "outlived", "status.phase", "Running")
	assert.Empty(s.t, append(s.scalers(standin.ScaleIns, "outlived", false), s.scalers(standin.ScaleOuts, "outlived", false)...))
	now := s.whole(workersOfET("outlived"), 4)
	s.elsewhere(first, now)
	s.elsewhere(second, now)
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "outlived", "status.restartCount"))
}
